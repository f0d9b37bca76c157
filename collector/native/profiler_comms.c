/* Communicators of the profiler plugin: their names for all ranks, the pools of their calls, and the order of those.
 *
 * NCCL gives every communicator a number that all of its ranks agree on; with the job, and marked with the attempt, it
 * is the id. Entries and pools are used again and never given back, so that a stale handle finds memory of ours, and in
 * it another generation.
 */
#define _GNU_SOURCE
#include "profiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "attempt_mark.h"
#include "blake2b.h"

enum { BACKEND_NCCL = 2, MAX_RANKS = 1 << 20, OVERDUE_NS = 100000000, KEPT_CALLS = 256 };

_Atomic(ph_shim_current_t) ph_shim_current;
static struct ph_profiled *_Atomic comms[PH_MAX_COMMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static struct ph_profiled *free_comms;
static uint32_t n_comms, n_worlds;
static uint8_t last_world[16];
static int32_t learned_rank = -1; /* where the environment does not say it, the world communicator does */

void ph_comm_forget(void) { /* in a forked child, where NCCL cannot be used on: leave the parent's memory alone */
    pthread_mutex_init(&lock, NULL);
    for (uint32_t i = 0; i < n_comms; i++) atomic_store(&comms[i], NULL);
    free_comms = NULL;
    n_comms = n_worlds = 0;
    learned_rank = -1;
    ph_frames_forget();
    ph_handles_renew(ph_now_ns() ^ ((uint64_t)ph_process.pid << 32));
}
void ph_trap_forget(void) {}

static void *address_space(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* With the lock: an entry with pools; NULL where there is no memory or no number left. */
static struct ph_profiled *take_entry(void) {
    struct ph_profiled *comm = free_comms;
    if (comm) {
        free_comms = comm->next_free;
        return comm;
    }
    if (n_comms == PH_MAX_COMMS || !(comm = calloc(1, sizeof *comm))) return NULL;
    comm->calls = address_space(PH_MAX_SLOTS * sizeof *comm->calls);
    comm->ops = comm->calls ? address_space(PH_MAX_SLOTS * sizeof *comm->ops) : NULL;
    if (!comm->ops) {
        if (comm->calls) munmap(comm->calls, PH_MAX_SLOTS * sizeof *comm->calls);
        free(comm);
        return NULL;
    }
    pthread_mutex_init(&comm->lock, NULL);
    comm->free_call = comm->free_op = -1;
    comm->index = n_comms;
    atomic_store(&comms[n_comms++], comm);
    return comm;
}

static void name_comm(uint8_t id[16], uint64_t comm_hash, int32_t size) {
    struct ph_blake2b state;
    static const uint32_t first_attempt = 0;
    static const char kind[] = "nccl profiler";
    ph_blake2b_begin(&state, 16);
    ph_blake2b_add(&state, kind, sizeof kind);
    ph_blake2b_add(&state, ph_process.job, strlen(ph_process.job) + 1);
    ph_blake2b_add(&state, &first_attempt, sizeof first_attempt);
    ph_blake2b_add(&state, &comm_hash, sizeof comm_hash);
    ph_blake2b_add(&state, &size, sizeof size);
    ph_blake2b_end(&state, id);
    ph_mark_attempt(id, ph_process.attempt);
}

/* PH_GROUP, and who is in it: everybody, or only our own place is known. */
static void announce(struct ph_thread *self, const struct ph_profiled *comm, const char *name, int32_t world_size,
                     uint32_t generation) {
    struct ph_record record;
    bool is_full = comm->size == world_size;
    if (atomic_load(&ph_shim_current)) return;
    const int32_t per_record = sizeof record.members.members / sizeof record.members.members[0];
    memset(&record, 0, sizeof record);
    record.kind = PH_GROUP;
    record.rank = comm->world_rank;
    memcpy(record.handle, comm->handle, sizeof record.handle);
    record.group.created_ns = ph_now_ns();
    record.group.generation = (int32_t)generation;
    record.group.world_size = world_size;
    record.group.n_members = comm->size;
    record.group.is_world = is_full && !ph_process.has_hooks;
    record.group.backend = BACKEND_NCCL;
    snprintf(record.group.name, sizeof record.group.name, "%s", name && *name ? name : "nccl");
    ph_ring_write(self, &record);
    memset(record.bytes, 0, sizeof record.bytes);
    if (!is_full || comm->rank != (int32_t)comm->world_rank) {
        record.kind = PH_PLACE;
        record.place.n_members = comm->size;
        record.place.index = comm->rank;
        ph_ring_write(self, &record);
        return;
    }
    record.kind = PH_MEMBERS;
    for (int32_t first = 0; first < comm->size; first += per_record) {
        int32_t n = comm->size - first < per_record ? comm->size - first : per_record;
        record.members.n_members = n;
        for (int32_t i = 0; i < n; i++) record.members.members[i] = first + i;
        ph_ring_write(self, &record);
    }
}

struct ph_profiled *ph_profiled_begin(uint64_t comm_hash, const char *name, int n_ranks, int rank) {
    struct ph_thread *self = ph_thread();
    if (!self || n_ranks < 1 || n_ranks > MAX_RANKS || rank < 0 || rank >= n_ranks || !ph_ring_ready(self)) return NULL;
    int64_t *pairs = calloc((size_t)n_ranks * 2, sizeof *pairs);
    if (!pairs) return NULL;
    pthread_mutex_lock(&lock);
    if (ph_process.world_size <= 0) ph_process.world_size = n_ranks; /* nobody has said: the first one is the world */
    bool is_full = n_ranks == ph_process.world_size;
    struct ph_profiled *comm = take_entry();
    uint8_t id[16];
    name_comm(id, comm_hash, n_ranks);
    if (is_full && comm && (n_worlds == 0 || memcmp(id, last_world, sizeof id))) {
        memcpy(last_world, id, sizeof id);
        n_worlds++; /* several ranks in one process are in one world */
    }
    uint32_t generation = n_worlds ? n_worlds - 1 : 0;
    if (is_full) learned_rank = rank;
    int32_t world_rank = ph_process.rank >= 0 ? ph_process.rank : is_full || learned_rank < 0 ? rank : learned_rank;
    int32_t world_size = ph_process.world_size;
    pthread_mutex_unlock(&lock);
    if (!comm) {
        free(pairs);
        return NULL;
    }
    struct ph_frame *frame = ph_frame_of(world_rank);
    pthread_mutex_lock(&comm->lock);
    free(comm->pairs);
    comm->pairs = pairs;
    comm->n_pairs = 2 * n_ranks;
    comm->generation = (comm->generation + 1) & PH_GENERATION_MASK;
    memcpy(comm->handle, id, sizeof id);
    comm->rank = rank;
    comm->size = n_ranks;
    comm->world_rank = (uint32_t)world_rank;
    comm->frame = frame;
    memset(&comm->clock, 0, sizeof comm->clock);
    memset(comm->nccl_next, 0, sizeof comm->nccl_next);
    memset(comm->edges, 0, sizeof comm->edges);
    comm->n_groups = 0;
    comm->collectives = 0;
    comm->oldest = comm->newest = -1;
    comm->first_launch_ns = comm->n_launched = comm->n_missed = comm->n_foreign = comm->n_gaps = 0;
    comm->has_kernel_events = comm->is_given_up = comm->is_without_kernels = comm->is_mapped = false;
    comm->n_open = 0;
    comm->is_live = true;
    pthread_mutex_unlock(&comm->lock);
    announce(self, comm, name, world_size, generation);
    return comm;
}

static void write_destroy(struct ph_thread *self, const struct ph_profiled *comm) {
    struct ph_record record;
    if (atomic_load(&ph_shim_current)) return;
    memset(&record, 0, sizeof record);
    record.kind = PH_DESTROY;
    record.rank = comm->world_rank;
    memcpy(record.handle, comm->handle, sizeof record.handle);
    ph_ring_write(self, &record);
}

static void say_what_was_odd(const struct ph_profiled *comm) {
    char text[160];
    if (!comm->n_missed && !comm->n_foreign && !comm->n_gaps) return;
    snprintf(text, sizeof text,
             "a communicator of %d: %llu calls not told of, %llu with missing instants, %llu transfers for other processes",
             comm->size, (unsigned long long)comm->n_missed, (unsigned long long)comm->n_gaps,
             (unsigned long long)comm->n_foreign);
    ph_process_note(text, 0);
}

void ph_profiled_end(struct ph_profiled *comm) {
    struct ph_thread *self = ph_thread();
    bool can_write = self && ph_ring_ready(self);
    comm->is_live = false;
    for (int32_t i = 0; i < comm->n_ops; i++)
        if (comm->ops[i].is_open) ph_op_close(comm, &comm->ops[i]);
    while (comm->oldest >= 0) {
        struct ph_call *call = &comm->calls[comm->oldest];
        ph_frame_end(comm->frame, call);
        comm->oldest = call->after;
        call->is_open = false;
        call->generation = (call->generation + 1) & PH_GENERATION_MASK;
        call->after = comm->free_call;
        comm->free_call = (int32_t)(call - comm->calls);
    }
    comm->newest = -1;
    if (can_write && !comm->is_given_up) write_destroy(self, comm);
    pthread_mutex_unlock(&comm->lock);
    say_what_was_odd(comm);
    pthread_mutex_lock(&lock);
    comm->next_free = free_comms;
    free_comms = comm;
    pthread_mutex_unlock(&lock);
}

struct ph_profiled *ph_profiled_lock(const struct ph_handle *handle) {
    struct ph_profiled *comm = atomic_load_explicit(&comms[handle->comm], memory_order_acquire);
    if (!comm) return NULL;
    pthread_mutex_lock(&comm->lock);
    if (comm->is_live && (handle->kind != PH_HANDLE_COMM || handle->generation == comm->generation)) return comm;
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}

struct ph_call *ph_call_of(struct ph_profiled *comm, const struct ph_handle *handle) {
    struct ph_call *call = &comm->calls[handle->slot];
    return call->is_open && call->generation == handle->generation ? call : NULL;
}

struct ph_op *ph_op_of(struct ph_profiled *comm, const struct ph_handle *handle) {
    struct ph_op *op = &comm->ops[handle->slot];
    return op->is_open && op->generation == handle->generation ? op : NULL;
}

int32_t ph_call_open(struct ph_profiled *comm) {
    int32_t slot = comm->free_call;
    if (slot >= 0) comm->free_call = comm->calls[slot].after;
    else if (comm->n_calls < PH_MAX_SLOTS) slot = comm->n_calls++;
    else return -1;
    struct ph_call *call = &comm->calls[slot];
    uint32_t generation = call->generation;
    memset(call, 0, sizeof *call);
    call->generation = generation;
    call->is_open = true;
    call->block = PH_BLOCK_NOT_ASKED;
    call->sent.count = call->received.count = -1;
    call->before = comm->newest;
    call->after = -1;
    if (comm->newest >= 0) comm->calls[comm->newest].after = slot;
    else comm->oldest = slot;
    comm->newest = slot;
    comm->n_open++;
    return slot;
}

int32_t ph_op_open(struct ph_profiled *comm) {
    int32_t slot = comm->free_op;
    if (slot >= 0) comm->free_op = comm->ops[slot].next_free;
    else if (comm->n_ops < PH_MAX_SLOTS) slot = comm->n_ops++;
    else return -1;
    uint32_t generation = comm->ops[slot].generation;
    comm->ops[slot] = (struct ph_op){.generation = generation, .is_open = true};
    return slot;
}

void ph_op_close(struct ph_profiled *comm, struct ph_op *op) {
    op->is_open = false;
    op->generation = (op->generation + 1) & PH_GENERATION_MASK;
    op->next_free = comm->free_op;
    comm->free_op = (int32_t)(op - comm->ops);
}

/* Writes its end and gives its slot back; when it began. */
static uint64_t end_call(struct ph_profiled *comm, struct ph_call *call, uint64_t now_ns) {
    struct ph_thread *self = ph_thread();
    struct ph_record record = ph_call_complete(call, &comm->clock, now_ns);
    if (self && self->header && !comm->is_given_up && !comm->is_without_kernels) ph_ring_write(self, &record);
    comm->n_open--;
    if (record.call.flags & PH_END_BOUND) comm->n_gaps++;
    ph_frame_end(comm->frame, call);
    if (call->before >= 0) comm->calls[call->before].after = call->after;
    else comm->oldest = call->after;
    if (call->after >= 0) comm->calls[call->after].before = call->before;
    else comm->newest = call->before;
    call->is_open = false;
    call->generation = (call->generation + 1) & PH_GENERATION_MASK;
    call->after = comm->free_call;
    comm->free_call = (int32_t)(call - comm->calls);
    return record.call.start_ns ? record.call.start_ns : record.call.end_ns;
}

void ph_call_close(struct ph_profiled *comm, struct ph_call *call, uint64_t now_ns) {
    uint64_t group = call->group, start_ns = end_call(comm, call, now_ns);
    for (int32_t slot = comm->oldest; slot >= 0 && comm->calls[slot].group < group; slot = comm->calls[slot].after) {
        if (comm->calls[slot].passed_ns) continue;
        comm->calls[slot].passed_ns = now_ns;
        comm->calls[slot].passed_start_ns = start_ns;
    }
    ph_calls_sweep(comm, now_ns);
}

/* Kernels of one communicator run in order, so a call with a later one done is done too, whatever is told of it. What is
 * told comes late sometimes: wait for it a little. */
void ph_calls_sweep(struct ph_profiled *comm, uint64_t now_ns) {
    /* Without kernel events nothing ends a call: it is kept for its transfers, which may begin a while after it. */
    while (comm->is_without_kernels && comm->n_open > KEPT_CALLS) end_call(comm, &comm->calls[comm->oldest], now_ns);
    while (comm->oldest >= 0) {
        struct ph_call *call = &comm->calls[comm->oldest];
        if (!call->passed_ns || now_ns - call->passed_ns < OVERDUE_NS) return;
        end_call(comm, call, now_ns);
    }
}
