/* One call: what its kernel and its transfers tell, and when it is over. No lock, no clock, no memory of its own.
 *
 * That NCCL says a call's event has stopped means that it is enqueued; over it is when its kernel has stopped on every
 * channel and its transfers are done. An instant that cannot be (before the launch, an end before its start) is one of
 * another call: NCCL reads them from a ring of its own that the GPU may have gone round in.
 */
#include "profiler.h"

#include <math.h>

enum { CLOCK_WINDOW_NS = 1000000000, EARLY_NS = 1000000, RATE_WINDOW_NS = 1000000, CHANNELS = 64 };

void ph_gpu_clock_seen(struct ph_gpu_clock *clock, uint64_t gpu_ns, uint64_t now_ns) {
    int64_t offset_ns = (int64_t)(now_ns - gpu_ns);
    if (!clock->is_known || (int64_t)now_ns - clock->window_ns >= CLOCK_WINDOW_NS) {
        clock->last_smallest = clock->is_known ? clock->now_smallest : offset_ns;
        clock->now_smallest = offset_ns;
        clock->window_ns = (int64_t)now_ns;
        clock->is_known = true;
    }
    if (offset_ns < clock->now_smallest) clock->now_smallest = offset_ns;
    clock->offset_ns = clock->now_smallest < clock->last_smallest ? clock->now_smallest : clock->last_smallest;
}

uint64_t ph_gpu_clock_map(const struct ph_gpu_clock *clock, uint64_t gpu_ns) {
    return gpu_ns + (uint64_t)clock->offset_ns;
}

void ph_transfers_add(struct ph_transfers *transfers, int64_t n, uint64_t now_ns) {
    uint64_t window = now_ns / RATE_WINDOW_NS + 1;
    if (transfers->count < 0) transfers->count = 0;
    transfers->count += n;
    if (window == transfers->last_window) return;
    transfers->last_window = window;
    transfers->n_windows++;
}

/* Transfers per window that saw any; NaN where there were none. */
static float rate_of(const struct ph_transfers *transfers) {
    return transfers->n_windows ? (float)transfers->count / (float)transfers->n_windows : NAN;
}

bool ph_call_kernel_start(struct ph_call *call, struct ph_gpu_clock *clock, uint8_t channel, uint64_t gpu_ns,
                          uint64_t now_ns) {
    uint64_t bit = 1ull << (channel % CHANNELS);
    if (call->started & bit) return false;
    call->started |= bit;
    if (gpu_ns) ph_gpu_clock_seen(clock, gpu_ns, now_ns);
    if (!gpu_ns || ph_gpu_clock_map(clock, gpu_ns) + EARLY_NS < call->record.call.launch_ns) {
        call->has_gaps = true;
        return true;
    }
    if (!call->gpu_start_ns || gpu_ns < call->gpu_start_ns) call->gpu_start_ns = gpu_ns;
    return true;
}

void ph_call_kernel_stop(struct ph_call *call, struct ph_gpu_clock *clock, uint8_t channel, uint64_t gpu_ns,
                         uint64_t now_ns) {
    uint64_t bit = 1ull << (channel % CHANNELS);
    if (call->stopped & bit) return;
    call->started |= bit;
    call->stopped |= bit;
    call->told_end_ns = now_ns;
    if (gpu_ns) ph_gpu_clock_seen(clock, gpu_ns, now_ns);
    if (!gpu_ns || gpu_ns < call->gpu_start_ns ||
        ph_gpu_clock_map(clock, gpu_ns) + EARLY_NS < call->record.call.launch_ns)
        call->has_gaps = true;
    else if (gpu_ns > call->gpu_end_ns)
        call->gpu_end_ns = gpu_ns;
}

bool ph_call_is_done(const struct ph_call *call) {
    int n_stopped = __builtin_popcountll(call->stopped);
    return n_stopped && call->started == call->stopped && n_stopped >= call->n_channels && !call->n_open_ops;
}

struct ph_record ph_call_complete(const struct ph_call *call, const struct ph_gpu_clock *clock, uint64_t now_ns) {
    struct ph_record record = call->record;
    uint64_t launch_ns = record.call.launch_ns, start_ns = 0, end_ns = 0;
    int n_stopped = __builtin_popcountll(call->stopped);
    bool is_whole = n_stopped && n_stopped >= call->n_channels && call->started == call->stopped && !call->has_gaps;
    if (call->gpu_start_ns) start_ns = ph_gpu_clock_map(clock, call->gpu_start_ns);
    if (call->gpu_end_ns) end_ns = ph_gpu_clock_map(clock, call->gpu_end_ns);
    if (!is_whole) { /* at the latest when it was told of, and before the next kernel began: they run in order */
        uint64_t latest_ns = n_stopped && call->started == call->stopped ? call->told_end_ns : now_ns;
        if (call->passed_ns && call->passed_start_ns < latest_ns) latest_ns = call->passed_start_ns;
        if (end_ns < latest_ns) end_ns = latest_ns;
        record.call.flags |= PH_END_BOUND;
    }
    if (end_ns > now_ns) end_ns = now_ns;
    if (end_ns < launch_ns) end_ns = launch_ns;
    if (start_ns && start_ns < launch_ns) start_ns = launch_ns;
    if (start_ns > end_ns) start_ns = end_ns;
    record.kind = PH_COMPLETE;
    record.call.start_ns = start_ns;
    record.call.end_ns = end_ns;
    if (n_stopped > record.call.channels) record.call.channels = (uint16_t)n_stopped;
    record.call.send_count = call->sent.count;
    record.call.recv_count = call->received.count;
    record.call.send_rate = rate_of(&call->sent);
    record.call.recv_rate = rate_of(&call->received);
    return record;
}
