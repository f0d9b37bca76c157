/* What NCCL enqueues: its collectives and its sends and receives, numbered and written down as launched. */
#include <math.h>
#include <string.h>

#include "profiler.h"

enum { SOURCE_PROFILER = 3, SOURCE_LAUNCHES = 10, SEND = 10, RECV = 11, NO_PEER = -1, BROADCAST = 4, REDUCE = 5, GATHER = 7, SCATTER = 8 };
enum { MAX_GAP = 1 << 20, SURE_CALLS = 16 };
static const uint64_t sure_after_ns = 5000000000u;

/* The number of the kernel that a call is in; calls without one get one of their own. With the lock. */
static uint64_t group_of(struct ph_profiled *comm, const void *packed) {
    struct ph_handle handle;
    if (!ph_handle_unpack(packed, &handle) || handle.kind != PH_HANDLE_GROUP || handle.comm != comm->index)
        return ++comm->n_groups;
    return comm->n_groups - ((comm->n_groups - handle.group) & PH_GROUP_MASK);
}

/* Ours for all functions together. NCCL's is per function: where it jumps, calls went by that nobody told of, and ours
 * jumps with it, so that ranks stay in step. With the lock. */
static int64_t number_of_coll(struct ph_profiled *comm, uint8_t op, uint64_t said) {
    uint64_t *next = &comm->nccl_next[op % 16];
    if (!op) return comm->collectives++; /* a function of a newer NCCL: there may be more than one of them */
    if (said > *next && said - *next < MAX_GAP) {
        comm->collectives += (int64_t)(said - *next);
        comm->n_missed += said - *next;
    }
    *next = said + 1;
    return comm->collectives++;
}

/* With the lock. A communicator on which calls are launched for seconds and no kernel is ever told of has none to tell
 * of (another way through NCCL): it would seem to hang, so it is left alone. */
static bool has_no_kernel_events(struct ph_profiled *comm, uint64_t now_ns) {
    if (!comm->first_launch_ns) comm->first_launch_ns = now_ns;
    return !comm->has_kernel_events && ++comm->n_launched > SURE_CALLS &&
           now_ns - comm->first_launch_ns > sure_after_ns;
}

static void *start_call(struct ph_profiled *comm, const struct ph_record *known, uint8_t n_channels, const void *group,
                        int64_t seq, uint64_t now_ns) {
    ph_calls_sweep(comm, now_ns);
    int32_t slot = ph_call_open(comm);
    if (slot < 0) {
        comm->n_missed++; /* its number is used: the agent sees the gap */
        return NULL;
    }
    struct ph_call *call = &comm->calls[slot];
    call->group = group_of(comm, group);
    call->n_channels = n_channels;
    call->record = *known;
    call->record.call.seq = seq;
    call->record.call.group = call->record.call.direction == PH_NONE ? 0 : call->group;
    if (!atomic_load(&ph_shim_current)) ph_ring_write(ph_thread(), &call->record);
    return ph_handle_of(PH_HANDLE_CALL, comm, (uint32_t)slot, call->generation, 0);
}

void *ph_task_start(struct ph_profiled *comm, const struct ph_profile_event *event, uint64_t type, const void *group) {
    struct ph_record record;
    uint64_t now_ns = ph_now_ns();
    bool is_coll = type == PH_PROFILE_COLL;
    ph_shim_current_t current = atomic_load(&ph_shim_current);
    if (comm->is_given_up) return NULL;
    if (current && !comm->is_mapped) comm->is_mapped = current(comm->size, comm->rank, comm->handle);
    if (!comm->is_without_kernels && has_no_kernel_events(comm, now_ns)) {
        memset(&record, 0, sizeof record);
        record.kind = PH_DESTROY;
        record.rank = comm->world_rank;
        memcpy(record.handle, comm->handle, sizeof record.handle);
        ph_ring_write(ph_thread(), &record);
        for (int32_t slot = comm->oldest; slot >= 0; slot = comm->calls[slot].after)
            ph_frame_end(comm->frame, &comm->calls[slot]);
        comm->is_given_up = true;
        return NULL;
    }
    memset(&record, 0, sizeof record);
    record.kind = PH_LAUNCH;
    record.rank = comm->world_rank;
    memcpy(record.handle, comm->handle, sizeof record.handle);
    record.call.op = ph_code_of_function(is_coll ? event->coll.func : event->p2p.func);
    record.call.dtype = ph_code_of_datatype(is_coll ? event->coll.datatype : event->p2p.datatype);
    record.call.flags = PH_ASYNC;
    record.call.source = comm->is_without_kernels ? SOURCE_LAUNCHES : SOURCE_PROFILER;
    record.call.channels = is_coll ? event->coll.n_channels : event->p2p.n_channels;
    record.call.peer = NO_PEER;
    record.call.count = (int64_t)(is_coll ? event->coll.count : event->p2p.count);
    record.call.launch_ns = now_ns;
    record.call.send_count = record.call.recv_count = -1;
    record.call.send_rate = record.call.recv_rate = NAN;
    if (is_coll) {
        uint8_t op = record.call.op;
        record.call.algorithm = ph_code_of_algorithm(event->coll.algorithm);
        record.call.protocol = ph_code_of_protocol(event->coll.protocol);
        if (op == BROADCAST || op == REDUCE || op == GATHER || op == SCATTER) {
            record.call.peer = event->coll.root;
            record.call.flags |= PH_LOCAL_PEER;
        }
        return start_call(comm, &record, event->coll.n_channels, group, number_of_coll(comm, op, event->coll.seq), now_ns);
    }
    if ((record.call.op != SEND && record.call.op != RECV) || event->p2p.peer < 0 || event->p2p.peer >= comm->size) {
        comm->n_missed++;
        return NULL;
    }
    record.call.direction = record.call.op == SEND ? PH_SEND : PH_RECV;
    record.call.peer = event->p2p.peer;
    record.call.flags |= PH_LOCAL_PEER;
    int64_t seq = comm->pairs[2 * event->p2p.peer + record.call.direction - 1]++;
    return start_call(comm, &record, event->p2p.n_channels, group, seq, now_ns);
}
