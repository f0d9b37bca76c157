/* nccl_shim.c: NCCL's functions, seen on their way (LD_PRELOAD).
 *
 * Each function here has NCCL's name, writes a record of the call into the ring of its thread (ring.h), and calls the
 * real one. Nothing here waits (shim_trap.c excepted, when a controller asks), allocates or logs per call, and
 * whatever fails on our side switches the shim off and leaves the call alone. Any number of threads.
 *
 * Not seen: calls through a pointer that dlsym gave for NCCL's own handle, a statically linked NCCL, replays of CUDA
 * graphs, NCCL's one-sided calls (ncclPutSignal, ncclSignal, ncclWaitSignal), which are no rounds, and communicators
 * made by ncclCommGrow, whose new members cannot compute an id that the old ones know.
 *
 * Where the profiler plugin is in the process as well, a call is told of once: by the plugin if NCCL tells it when calls
 * end, and then we count calls for the trap and write nothing; else by us.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "real.h"
#include "shim.h"

/* Positions in OPS, DTYPES and REDOPS of pacehound/model/codes.py, the latter two by NCCL's own numbers. */
enum { ALL_REDUCE = 1, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL, GATHER, SCATTER, SEND = 10, RECV };
enum { SOURCE_SHIM = 2, NO_REDOP = -1, NO_PEER = -1, PREMUL_SUM = 6 };
static const uint8_t dtypes[NCCL_DATA_TYPES] = {1, 2, 4, 5, 6, 7, 8, 10, 11, 9, 12, 13};
static const uint8_t redops[NCCL_BUILT_IN_REDOPS] = {1, 2, 4, 3, 5};

static _Atomic bool has_captured;
_Atomic bool ph_shim_is_silent;

static bool tells(void) { return PH_LIKELY(!atomic_load_explicit(&ph_shim_is_silent, memory_order_relaxed)); }

/* The plugin is here, before any communicator is. It sees the ends of calls, or only their launches. */
EXPORT bool pacehound_shim_meets_plugin(bool sees_ends);
EXPORT bool pacehound_shim_meets_plugin(bool sees_ends) {
    if (sees_ends) atomic_store(&ph_shim_is_silent, true);
    return true;
}

/* What NCCL launches on this thread now: our id of its communicator, if that has this shape. False: not known. */
EXPORT bool pacehound_shim_current(int32_t size, int32_t rank, uint8_t handle[16]);
EXPORT bool pacehound_shim_current(int32_t size, int32_t rank, uint8_t handle[16]) {
    struct ph_thread *self = ph_thread();
    const struct ph_comm *comm = self ? self->current : NULL;
    if (!comm || comm->size != size || comm->rank != rank) return false;
    memcpy(handle, comm->handle, sizeof comm->handle);
    return true;
}

/* What a call took, to be given back should NCCL refuse it: then its peers will not count it either. */
struct taken {
    struct ph_thread *self; /* NULL: not ours to see */
    struct ph_comm *comm;   /* NULL: not known */
    _Atomic int64_t *counter;
    struct ph_timed *timed; /* NULL: not timed on the device */
};

static void publish_world(const struct ph_comm *comm, int64_t launched) {
    if (comm == ph_comm_world())
        atomic_store_explicit(&atomic_load_explicit(&ph_process.control, memory_order_relaxed)->world_launched,
                              (uint64_t)launched, memory_order_release);
}

static bool is_pair(const struct ph_record *record) { return record->call.direction != PH_NONE; }

/* What waits in the thread's group is launched now, timed as one or (NULL) not. Communicators that have gone meanwhile
 * are left out. */
static void launch_waiting(struct ph_thread *self, uint64_t now_ns, struct ph_timed *timed) {
    for (uint32_t i = 0; i < self->n_waiting; i++) {
        struct ph_waiting *waiting = &self->waiting[i];
        if (!atomic_load(&waiting->comm->key) || memcmp(waiting->comm->handle, waiting->record.handle, 16)) continue;
        waiting->record.call.launch_ns = now_ns;
        if (timed) waiting->record.call.flags |= PH_TIMED;
        if (tells()) ph_ring_write(self, &waiting->record);
        if (timed) ph_timing_launched(timed, &waiting->record);
        if (!is_pair(&waiting->record)) publish_world(waiting->comm, waiting->record.call.seq + 1);
    }
}

/* Room for one more call of the group; NULL (and the shim is off) where there is no memory. */
static struct ph_waiting *one_more(struct ph_thread *self) {
    if (!self->waiting) {
        void *memory = mmap(NULL, PH_MAX_WAITING * sizeof *self->waiting, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            ph_process_fail("no memory for a group", 0);
            return NULL;
        }
        self->waiting = memory;
    }
    if (self->n_waiting == PH_MAX_WAITING) { /* the first ones come with the time at which there were too many */
        launch_waiting(self, ph_now_ns(), NULL);
        self->n_waiting = 0;
    }
    return &self->waiting[self->n_waiting++];
}

static inline void fill(struct ph_record *record, const struct ph_comm *comm, uint8_t op, int type, int redop,
                        uint8_t direction, int peer, size_t count, bool is_captured, int64_t seq, cudaStream_t stream,
                        uint64_t group, uint64_t launch_ns) {
    record->kind = PH_LAUNCH;
    memset(record->reserved, 0, sizeof record->reserved);
    record->rank = comm->world_rank;
    memcpy(record->handle, comm->handle, sizeof record->handle);
    record->call.op = op;
    record->call.dtype = (unsigned)type < NCCL_DATA_TYPES ? dtypes[type] : 0;
    record->call.redop = redop == NO_REDOP ? 0 : (unsigned)redop < NCCL_BUILT_IN_REDOPS ? redops[redop] : PREMUL_SUM;
    record->call.direction = direction;
    record->call.flags = PH_ASYNC | (is_captured ? PH_CAPTURED : 0) | (peer == NO_PEER ? 0 : PH_LOCAL_PEER);
    record->call.source = SOURCE_SHIM;
    record->call.channels = 0;
    record->call.peer = peer;
    record->call.algorithm = record->call.protocol = 0;
    record->call.reserved = 0;
    record->call.seq = seq;
    record->call.count = (int64_t)count;
    record->call.launch_ns = launch_ns;
    record->call.start_ns = record->call.end_ns = 0;
    record->call.stream = (uint64_t)(uintptr_t)stream;
    record->call.group = group;
    record->call.send_count = record->call.recv_count = -1;
}

/* A call begins. `peer` is that of a pair, the root, or NO_PEER. */
static struct taken enter(uint8_t op, int type, int redop, uint8_t direction, int peer, size_t count, ncclComm_t key,
                          cudaStream_t stream) {
    struct taken taken = {NULL, NULL, NULL, NULL};
    if (PH_UNLIKELY(!atomic_load_explicit(&ph_process.is_on, memory_order_relaxed))) return taken;
    struct ph_thread *self = ph_thread();
    bool is_told = tells();
    if (PH_UNLIKELY(!self || self->is_inside || (is_told && !ph_ring_ready(self)))) return taken;
    bool is_measured = is_told && self->next % PH_MEASURED_EVERY == PH_MEASURED_EVERY - 1;
    uint64_t begun_ns = PH_UNLIKELY(is_measured) ? ph_now_ns() : 0;
    int capture = ph_capture_status(stream);
    bool is_captured = capture > 0;
    if (PH_UNLIKELY(is_captured)) atomic_store_explicit(&has_captured, true, memory_order_relaxed);
    else if (self->depth == 0) ph_trap_check();
    if (is_told) ph_timing_check();
    taken.self = self;
    struct ph_comm *comm = ph_comm_find(key);
    if (PH_LIKELY(comm != NULL) && direction == PH_NONE) taken.counter = &comm->collectives;
    else if (comm && peer >= 0 && 2 * (int64_t)peer < comm->n_pairs && peer < comm->size)
        taken.counter = &comm->pairs[2 * peer + direction - 1];
    if (PH_UNLIKELY(!taken.counter)) {
        atomic_fetch_add(&atomic_load(&ph_process.control)->unnamed, 1);
    } else {
        int64_t seq = atomic_fetch_add_explicit(taken.counter, 1, memory_order_relaxed);
        taken.comm = comm;
        if (self->depth == 0) self->current = comm;
        if (self->depth == 0 && PH_UNLIKELY(!is_told)) {
            if (direction == PH_NONE) publish_world(comm, seq + 1);
        } else if (self->depth == 0) {
            uint64_t now_ns = ph_now_ns();
            if (ph_timing_wants(seq) && !is_captured)
                taken.timed = ph_timing_begin(comm->context, stream, capture, now_ns);
            struct ph_record *record = ph_ring_begin(self);
            fill(record, comm, op, type, redop, direction, peer, count, is_captured, seq, stream, 0, now_ns);
            if (PH_UNLIKELY(taken.timed != NULL)) {
                record->call.flags |= PH_TIMED;
                ph_timing_launched(taken.timed, record);
            }
            ph_ring_commit(self, record);
            if (direction == PH_NONE) publish_world(comm, seq + 1);
        } else {
            struct ph_waiting *waiting = one_more(self);
            if (waiting) {
                fill(&waiting->record, comm, op, type, redop, direction, peer, count, is_captured, seq, stream,
                     self->group, 0);
                waiting->comm = comm;
            }
        }
    }
    if (PH_UNLIKELY(begun_ns != 0) && self->depth == 0) ph_ring_measured(self, ph_now_ns() - begun_ns);
    self->is_inside = true;
    return taken;
}

static bool is_refused(ncclResult_t result) { return result == ncclInvalidArgument || result == ncclInvalidUsage; }

static inline ncclResult_t leave(const struct taken *taken, ncclResult_t result) {
    struct ph_thread *self = taken->self;
    if (!self) return result;
    self->is_inside = false;
    self->current = NULL;
    if (PH_UNLIKELY(taken->timed != NULL)) ph_timing_end(taken->timed, result);
    if (PH_UNLIKELY(is_refused(result)) && taken->counter) {
        int64_t seq = atomic_fetch_sub_explicit(taken->counter, 1, memory_order_relaxed) - 1;
        if (self->depth > 0 && self->n_waiting > 0) self->n_waiting--;
        else if (taken->counter == &taken->comm->collectives) publish_world(taken->comm, seq);
    }
    return result;
}

/* One function of NCCL's: `arguments` as it is declared, `given` as they are passed on. */
#define CALL(name, arguments, given, op, type, redop, direction, peer, count)                      \
    EXPORT ncclResult_t name arguments;                                                            \
    EXPORT ncclResult_t name arguments {                                                           \
        __typeof__(&name) real = REAL(name);                                                       \
        if (PH_UNLIKELY(!real)) return ncclSystemError;                                            \
        struct taken taken = enter(op, type, redop, direction, peer, count, comm, stream);         \
        return leave(&taken, real given);                                                          \
    }

CALL(ncclAllReduce,
     (const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream),
     (in, out, n, type, op, comm, stream), ALL_REDUCE, type, op, PH_NONE, NO_PEER, n)
CALL(ncclAllGather, (const void *in, void *out, size_t n, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
     (in, out, n, type, comm, stream), ALL_GATHER, type, NO_REDOP, PH_NONE, NO_PEER, n)
CALL(ncclReduceScatter,
     (const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream),
     (in, out, n, type, op, comm, stream), REDUCE_SCATTER, type, op, PH_NONE, NO_PEER, n)
CALL(ncclBroadcast,
     (const void *in, void *out, size_t n, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
     (in, out, n, type, root, comm, stream), BROADCAST, type, NO_REDOP, PH_NONE, root, n)
CALL(ncclBcast, (void *data, size_t n, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
     (data, n, type, root, comm, stream), BROADCAST, type, NO_REDOP, PH_NONE, root, n)
CALL(ncclReduce,
     (const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
      cudaStream_t stream),
     (in, out, n, type, op, root, comm, stream), REDUCE, type, op, PH_NONE, root, n)
CALL(ncclAlltoAll, (const void *in, void *out, size_t n, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream),
     (in, out, n, type, comm, stream), ALL_TO_ALL, type, NO_REDOP, PH_NONE, NO_PEER, n)
CALL(ncclGather,
     (const void *in, void *out, size_t n, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
     (in, out, n, type, root, comm, stream), GATHER, type, NO_REDOP, PH_NONE, root, n)
CALL(ncclScatter,
     (const void *in, void *out, size_t n, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream),
     (in, out, n, type, root, comm, stream), SCATTER, type, NO_REDOP, PH_NONE, root, n)
CALL(ncclSend, (const void *in, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
     (in, n, type, peer, comm, stream), SEND, type, NO_REDOP, PH_SEND, peer, n)
CALL(ncclRecv, (void *out, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream),
     (out, n, type, peer, comm, stream), RECV, type, NO_REDOP, PH_RECV, peer, n)

#undef CALL

/* Groups. Their depth is counted even while the shim is off: the first communicator may be made inside of one. */

static void give_back_waiting(struct ph_thread *self) {
    for (uint32_t i = self->n_waiting; i-- > 0;) {
        struct ph_comm *comm = self->waiting[i].comm;
        const struct ph_record *record = &self->waiting[i].record;
        if (!atomic_load(&comm->key) || memcmp(comm->handle, record->handle, 16)) continue;
        _Atomic int64_t *counter = is_pair(record)
                                       ? &comm->pairs[2 * record->call.peer + record->call.direction - 1]
                                       : &comm->collectives;
        int64_t seq = atomic_fetch_sub(counter, 1) - 1;
        if (!is_pair(record)) publish_world(comm, seq);
    }
}

EXPORT ncclResult_t ncclGroupStart(void);
EXPORT ncclResult_t ncclGroupStart(void) {
    static _Atomic uint64_t n_groups;
    __typeof__(&ncclGroupStart) real = REAL(ncclGroupStart);
    struct ph_thread *self = ph_thread();
    if (!real) return ncclSystemError;
    if (!self || self->is_inside) return real();
    /* A group does not say on which stream it will run: where graphs are captured, it is not held here. */
    if (self->depth == 0 && !atomic_load_explicit(&has_captured, memory_order_relaxed)) ph_trap_check();
    self->is_inside = true;
    ncclResult_t result = real();
    self->is_inside = false;
    if (result == ncclSuccess && self->depth++ == 0) {
        self->group = atomic_fetch_add_explicit(&n_groups, 1, memory_order_relaxed) + 1;
        self->n_waiting = self->n_births = 0;
    }
    return result;
}

EXPORT ncclResult_t ncclGroupEnd(void);
EXPORT ncclResult_t ncclGroupEnd(void) {
    __typeof__(&ncclGroupEnd) real = REAL(ncclGroupEnd);
    struct ph_thread *self = ph_thread();
    if (!real) return ncclSystemError;
    if (!self || self->is_inside || self->depth == 0) return real();
    bool is_last = self->depth == 1;
    struct ph_timed *timed = NULL;
    if (is_last && self->n_waiting && atomic_load_explicit(&ph_process.is_on, memory_order_relaxed)) {
        uint64_t now_ns = ph_now_ns();
        if (PH_UNLIKELY(atomic_load_explicit(&ph_timing_every, memory_order_relaxed)))
            timed = ph_timing_begin_group(self, now_ns);
        launch_waiting(self, now_ns, timed);
    }
    self->is_inside = true;
    self->current = is_last && self->n_waiting ? self->waiting[0].comm : NULL;
    for (uint32_t i = 0; self->current && i < self->n_waiting; i++)
        if (self->waiting[i].comm != self->current) self->current = NULL;
    ncclResult_t result = real();
    self->is_inside = false;
    self->current = NULL;
    if (PH_UNLIKELY(timed != NULL)) ph_timing_end(timed, result);
    self->depth--;
    if (is_last) {
        if (is_refused(result)) give_back_waiting(self);
        self->n_waiting = 0;
        ph_births_of_group(self, result);
    }
    return result;
}

EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info);
EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
    __typeof__(&ncclGroupSimulateEnd) real = REAL(ncclGroupSimulateEnd);
    struct ph_thread *self = ph_thread();
    if (!real) return ncclSystemError;
    if (!self || self->is_inside || self->depth == 0) return real(info);
    self->is_inside = true;
    ncclResult_t result = real(info);
    self->is_inside = false;
    if (--self->depth == 0) { /* nothing of it was launched */
        give_back_waiting(self);
        self->n_waiting = self->n_births = 0;
    }
    return result;
}
