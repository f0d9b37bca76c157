/* nccl_profiler.c: NCCL's profiler plugin interface, versions 4, 5 and 6 (profiler_abi.h), from one library.
 *
 * It sees what the shim cannot: when a call's kernel began and ended on the GPU, replays of graphs among them, and how
 * many network transfers it made. A PH_LAUNCH is written when NCCL enqueues a call, its PH_COMPLETE when the kernel has
 * stopped on every channel and the transfers are done.
 *
 * Not seen: transfers over NVLink or shared memory; those that another process does for us (PXN: that one is told of
 * them, with our addresses, which mean nothing there); collectives on copy engines; the reduction's operator and the
 * stream. NCCL leaves records out when it is in a hurry: profiler_comms.c ends such calls when a later one is done.
 * Point-to-point calls have no number of NCCL's: they are counted per (communicator, peer, direction).
 *
 * Some versions are not asked for kernel events (profiler_refusal.c): of their calls the launch is told, and over which
 * edges they send. Where the shim is in the process it tells of those calls (nccl_shim.c), and we of the edges alone.
 *
 * Nothing that goes wrong here reaches NCCL: every function gives ncclSuccess. Any number of threads; the entries of a
 * communicator are under its lock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "profiler.h"

enum { STEPS = 8 };
enum {
    WANTED = PH_PROFILE_COLL | PH_PROFILE_P2P | PH_PROFILE_PROXY_OP | PH_PROFILE_PROXY_STEP | PH_PROFILE_KERNEL_CH
};

static bool is_on(void) { return PH_LIKELY(atomic_load_explicit(&ph_process.is_on, memory_order_relaxed)); }

static bool can_write(void) {
    struct ph_thread *self = ph_thread();
    return self && ph_ring_ready(self);
}

/* The shim, where it is loaded, is before everything else in the order of symbols. */
static void meet_shim(bool sees_ends) {
    bool (*meets)(bool) = (bool (*)(bool))dlsym(RTLD_DEFAULT, "pacehound_shim_meets_plugin");
    ph_shim_current_t current = (ph_shim_current_t)dlsym(RTLD_DEFAULT, "pacehound_shim_current");
    if (meets && current && meets(sees_ends) && !sees_ends) atomic_store(&ph_shim_current, current);
}

/* What to ask NCCL for; 0: nothing. The reason is said once per process: beside the rings, and where people look. */
static int wanted_of(ph_nccl_log_t log) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    static bool was_asked;
    static int wanted;
    pthread_mutex_lock(&once);
    if (!was_asked) {
        int version = ph_version_behind(log);
        const char *why = ph_refused_version(version), *without = ph_no_kernel_events(version);
        const char *insists = getenv("PACEHOUND_NCCL_KERNELS"); /* to measure what they cost: bench/on_gpu */
        if (insists && *insists == '1') without = NULL;
        if (!why && ph_shared_memory_is_short())
            why = "/dev/shm has less than 256 MiB left, with which NCCL was reported to crash (NVIDIA/nccl#2326); "
                  "containers: --shm-size=1g";
        was_asked = true;
        wanted = why ? 0 : without ? WANTED & ~PH_PROFILE_KERNEL_CH : WANTED;
        if (!why && without) ph_process_note(without, 0);
        if (why) {
            fprintf(stderr, "pacehound: the NCCL profiler plugin does nothing: %s\n", why);
            ph_process_fail(why, 0);
        } else {
            ph_handles_renew(ph_now_ns() ^ ((uint64_t)ph_process.pid << 32));
            meet_shim(!without);
        }
    }
    pthread_mutex_unlock(&once);
    return wanted;
}

static ncclResult_t init(void **context, uint64_t comm_hash, int *mask, const char *name, int n_ranks, int rank,
                         ph_nccl_log_t log) {
    *context = NULL;
    *mask = ph_process_start() ? wanted_of(log) : 0; /* it is one for all communicators of the process, as is the reason */
    if (!*mask) return ncclSuccess;
    struct ph_profiled *comm = ph_profiled_begin(comm_hash, name, n_ranks, rank);
    if (comm && !(*mask & PH_PROFILE_KERNEL_CH)) { /* the frame tells of calls until they end, which nobody would say */
        comm->is_without_kernels = true;
        comm->frame = NULL;
    }
    if (comm) *context = ph_handle_of(PH_HANDLE_COMM, comm, 0, comm->generation, 0);
    else ph_process_note("a communicator is not watched: no room for another one", 0);
    return ncclSuccess;
}

static ncclResult_t finalize(void *context) {
    struct ph_handle handle;
    if (!ph_handle_unpack(context, &handle) || handle.kind != PH_HANDLE_COMM) return ncclSuccess;
    struct ph_profiled *comm = ph_profiled_lock(&handle);
    if (comm) ph_profiled_end(comm); /* unlocks */
    return ncclSuccess;
}

/* What a kernel or a transfer belongs to; NULL where that is over. With the lock. */
static struct ph_call *parent_call(struct ph_profiled *comm, const void *packed, struct ph_handle *handle) {
    if (!ph_handle_unpack(packed, handle) || handle->kind != PH_HANDLE_CALL || handle->comm != comm->index) return NULL;
    return ph_call_of(comm, handle);
}

static void *start_kernel(struct ph_profiled *comm, const struct ph_profile_event *event) {
    struct ph_handle parent;
    uint64_t now_ns = ph_now_ns();
    comm->has_kernel_events = true;
    struct ph_call *call = parent_call(comm, event->parent, &parent);
    if (!call || !ph_call_kernel_start(call, &comm->clock, event->kernel.channel, event->kernel.gpu_ns, now_ns)) return NULL;
    ph_frame_begin(comm->frame, call);
    return ph_handle_of(PH_HANDLE_KERNEL, comm, parent.slot, parent.generation, event->kernel.channel);
}

/* A collective sends to, or receives from, a peer: told once per algorithm, channel and direction. With the lock. */
static void tell_edge(const struct ph_call *call, struct ph_profiled *comm, const struct ph_op *op, int peer) {
    struct ph_record record;
    uint64_t channel = op->channel % PH_FRAME_CHANNELS, direction = op->is_send ? PH_SEND : PH_RECV;
    uint64_t packed = (uint64_t)(uint32_t)peer << 16 | (uint64_t)call->record.call.algorithm << 8 | channel << 2 | direction;
    if (call->record.call.direction != PH_NONE || !call->record.call.algorithm) return;
    if (atomic_load(&ph_shim_current) && !comm->is_mapped) return;
    if (peer < 0 || peer >= comm->size || peer == comm->rank) return;
    uint32_t at = (uint32_t)(packed * 0x9e3779b97f4a7c15u >> 56) % PH_MAX_EDGES, n = 0;
    for (; n < PH_MAX_EDGES && comm->edges[at]; n++, at = (at + 1) % PH_MAX_EDGES)
        if (comm->edges[at] == packed) return;
    if (n == PH_MAX_EDGES) return;
    comm->edges[at] = packed;
    memset(&record, 0, sizeof record);
    record.kind = PH_EDGE;
    record.rank = comm->world_rank;
    memcpy(record.handle, comm->handle, sizeof record.handle);
    record.edge.index = comm->rank;
    record.edge.peer = peer;
    record.edge.algorithm = call->record.call.algorithm;
    record.edge.channel = (uint8_t)channel;
    record.edge.direction = (uint8_t)direction;
    ph_ring_write(ph_thread(), &record);
}

static void *start_op(struct ph_profiled *comm, const struct ph_profile_event *event) {
    struct ph_handle parent;
    struct ph_call *call = parent_call(comm, event->parent, &parent);
    int32_t slot = call ? ph_op_open(comm) : -1;
    if (slot < 0) return NULL;
    struct ph_op *op = &comm->ops[slot];
    op->call = (int32_t)parent.slot;
    op->call_generation = parent.generation;
    op->is_send = event->proxy_op.is_send != 0;
    op->channel = event->proxy_op.channel;
    op->n_steps = event->proxy_op.n_steps;
    call->n_open_ops++;
    struct ph_transfers *transfers = op->is_send ? &call->sent : &call->received;
    if (transfers->count < 0) transfers->count = 0;
    ph_frame_begin(comm->frame, call);
    ph_frame_count(comm->frame, call, op, op->n_steps, 0);
    tell_edge(call, comm, op, event->proxy_op.peer);
    return ph_handle_of(PH_HANDLE_OP, comm, (uint32_t)slot, op->generation, 0);
}

static void *start_step(struct ph_profiled *comm, const struct ph_profile_event *event) {
    struct ph_handle parent;
    if (!ph_handle_unpack(event->parent, &parent) || parent.kind != PH_HANDLE_OP || parent.comm != comm->index) return NULL;
    struct ph_op *op = ph_op_of(comm, &parent);
    if (!op) return NULL;
    uint32_t part = (uint32_t)event->proxy_step.step % STEPS;
    op->open_steps |= (uint8_t)(1u << part);
    return ph_handle_of(PH_HANDLE_STEP, comm, parent.slot, parent.generation, part);
}

static ncclResult_t start(void *context, void **handle, const struct ph_profile_event *event, uint64_t type,
                          const void *group) {
    struct ph_handle unpacked;
    *handle = NULL;
    if (!is_on() || !(type & (WANTED | PH_PROFILE_GROUP))) return ncclSuccess;
    /* PXN: context and parent are another process's, too, and nearly always show it by themselves. */
    bool is_foreign = type == PH_PROFILE_PROXY_OP && event->proxy_op.pid != (pid_t)ph_process.pid;
    if (!ph_handle_unpack(context, &unpacked) || unpacked.kind != PH_HANDLE_COMM || !can_write()) return ncclSuccess;
    struct ph_profiled *comm = ph_profiled_lock(&unpacked);
    if (!comm) return ncclSuccess;
    bool was_given_up = comm->is_given_up;
    if (is_foreign) comm->n_foreign++;
    else if (type == PH_PROFILE_GROUP) {
        *handle = ph_handle_pack((struct ph_handle){
            .kind = PH_HANDLE_GROUP, .comm = comm->index, .group = (uint32_t)++comm->n_groups});
    } else if (type == PH_PROFILE_COLL || type == PH_PROFILE_P2P) *handle = ph_task_start(comm, event, type, group);
    else if (type == PH_PROFILE_KERNEL_CH) *handle = start_kernel(comm, event);
    else if (type == PH_PROFILE_PROXY_OP) *handle = start_op(comm, event);
    else if (type == PH_PROFILE_PROXY_STEP) *handle = start_step(comm, event);
    bool is_news = comm->is_given_up && !was_given_up;
    pthread_mutex_unlock(&comm->lock);
    if (is_news) ph_process_note("a communicator is not watched: NCCL tells of no kernels on it", 0);
    return ncclSuccess;
}

static void close_if_done(struct ph_profiled *comm, struct ph_call *call, uint64_t now_ns) {
    if (ph_call_is_done(call)) ph_call_close(comm, call, now_ns);
}

/* The call that an op belongs to; NULL where it is over. */
static struct ph_call *call_of_op(struct ph_profiled *comm, const struct ph_op *op) {
    struct ph_handle handle = {.slot = (uint32_t)op->call, .generation = op->call_generation};
    return ph_call_of(comm, &handle);
}

static void stop_step(struct ph_profiled *comm, struct ph_op *op, uint32_t part, uint64_t now_ns) {
    uint8_t bit = (uint8_t)(1u << part % STEPS);
    if (!(op->open_steps & bit) || op->n_done >= op->n_steps) return;
    op->open_steps &= (uint8_t)~bit;
    op->n_done++;
    struct ph_call *call = call_of_op(comm, op);
    if (!call) return;
    ph_transfers_add(op->is_send ? &call->sent : &call->received, 1, now_ns);
    ph_frame_count(comm->frame, call, op, 0, 1);
}

/* NCCL ends an op when all of its transfers are done: those that it did not tell of were made, nobody knows when. */
static void stop_op(struct ph_profiled *comm, struct ph_op *op, uint64_t now_ns) {
    struct ph_call *call = call_of_op(comm, op);
    if (call) {
        if (op->n_done < op->n_steps) {
            (op->is_send ? &call->sent : &call->received)->count += op->n_steps - op->n_done;
            ph_frame_count(comm->frame, call, op, 0, op->n_steps - op->n_done);
        }
        if (call->n_open_ops) call->n_open_ops--;
    }
    ph_op_close(comm, op);
    if (call) close_if_done(comm, call, now_ns);
}

/* A kernel event ends with its time (`record`) or without (`stop` alone). */
static void stop_kernel(struct ph_profiled *comm, const struct ph_handle *handle, uint64_t gpu_ns, uint64_t now_ns) {
    struct ph_call *call = ph_call_of(comm, handle);
    if (!call) return;
    ph_call_kernel_stop(call, &comm->clock, (uint8_t)handle->part, gpu_ns, now_ns);
    close_if_done(comm, call, now_ns);
}

static ncclResult_t stop(void *packed) {
    struct ph_handle handle;
    struct ph_op *op;
    if (!is_on() || !ph_handle_unpack(packed, &handle)) return ncclSuccess;
    if (handle.kind != PH_HANDLE_KERNEL && handle.kind != PH_HANDLE_OP && handle.kind != PH_HANDLE_STEP)
        return ncclSuccess; /* a call that has stopped is enqueued, no more */
    if (!can_write()) return ncclSuccess;
    struct ph_profiled *comm = ph_profiled_lock(&handle);
    if (!comm) return ncclSuccess;
    uint64_t now_ns = ph_now_ns();
    if (handle.kind == PH_HANDLE_KERNEL) stop_kernel(comm, &handle, 0, now_ns);
    else if ((op = ph_op_of(comm, &handle)) != NULL) {
        if (handle.kind == PH_HANDLE_OP) stop_op(comm, op, now_ns);
        else stop_step(comm, op, handle.part, now_ns);
    }
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

static ncclResult_t record(void *packed, int state, union ph_profile_state *arguments) {
    struct ph_handle handle;
    if (!is_on() || state != PH_STATE_KERNEL_STOP || !arguments || !ph_handle_unpack(packed, &handle)) return ncclSuccess;
    if (handle.kind != PH_HANDLE_KERNEL || !can_write()) return ncclSuccess;
    struct ph_profiled *comm = ph_profiled_lock(&handle);
    if (!comm) return ncclSuccess;
    stop_kernel(comm, &handle, arguments->gpu_ns, ph_now_ns());
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

/* The three versions. */

static ncclResult_t init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes, int n_ranks, int rank,
                            ph_nccl_log_t log) {
    (void)nodes;
    return init(context, hash, mask, name, n_ranks, rank, log);
}

static ncclResult_t init_v5(void **context, uint64_t hash, int *mask, const char *name, int nodes, int n_ranks, int rank,
                            ph_nccl_log_t log) {
    (void)nodes;
    return init(context, hash, mask, name, n_ranks, rank, log);
}

static ncclResult_t start_v4(void *context, void **handle, struct ph_profile_event *event) {
    return start(context, handle, event, event->type_v4, event->parent);
}

static ncclResult_t start_v5(void *context, void **handle, struct ph_profile_event *event) {
    const void *group = NULL;
    if (event->type == PH_PROFILE_COLL) group = event->coll.group;
    if (event->type == PH_PROFILE_P2P) group = event->p2p.group;
    return start(context, handle, event, event->type, group);
}

#define EXPORTED __attribute__((visibility("default")))
#define NAME "pacehound"
EXPORTED const struct ph_profiler_v4 ncclProfiler_v4 = {
    .name = NAME, .init = init_v4, .start = start_v4, .stop = stop, .record = record, .finalize = finalize};
EXPORTED const struct ph_profiler_v5 ncclProfiler_v5 = {
    .name = NAME, .init = init_v5, .start = start_v5, .stop = stop, .record = record, .finalize = finalize};
EXPORTED const struct ph_profiler_v5 ncclProfiler_v6 = {
    .name = NAME, .init = init_v5, .start = start_v5, .stop = stop, .record = record, .finalize = finalize};
