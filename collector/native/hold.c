/* The trap and the times of control.h for a process whose calls torch's hooks see: no shim is loaded, the hooks say what
 * is launched.
 *
 * A library of its own (pacehound/instrument/hold.py), of shim_trap.c, shim_timing.c and what they need of a process. What
 * it offers may be called on any thread, with or without the interpreter's lock; `pacehound_hold_look` may wait.
 *
 * A call that is timed has an event on the stream that is current when it is launched, and one behind it: on the same
 * stream where torch runs the call there (async_op=False), else on one that waits for it. So the first one says when the
 * rank was ready for the call, and the call's start is that or the end of the call before it, whichever is later.
 */
#define _GNU_SOURCE
#include "timing.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define PH_OFFERED __attribute__((visibility("default")))

static _Atomic bool has_world;
static _Atomic(void *) context;
static struct ph_comm world;

struct ph_comm *ph_comm_world(void) { return atomic_load(&has_world) ? &world : NULL; }

/* The context of the calling thread, which is that of its kernels; NULL where it has none. */
static void *see_context(void) {
    static _Atomic(void *) found; /* cuCtxGetCurrent */
    void *now = NULL, *current = atomic_load(&found);
    if (!current) atomic_store(&found, current = ph_cuda_find("cuCtxGetCurrent"));
    if (current && ((int (*)(void **))current)(&now) == 0 && now) atomic_store(&context, now);
    return now;
}

/* That of the thread that launched, or was held, last. */
int ph_comm_contexts(void **contexts, int room) {
    if (!ph_cuda_find("cuCtxGetCurrent")) return -1;
    contexts[0] = atomic_load(&context);
    return contexts[0] && room > 0 ? 1 : 0;
}

/* The process has joined a group. True where it has a control block: it can be held. */
PH_OFFERED bool pacehound_hold_start(int32_t rank) {
    if (!ph_process_start()) return false;
    struct ph_control *control = atomic_load(&ph_process.control);
    ph_process.rank = rank;
    control->rank = rank;
    return control->magic == PH_CONTROL_MAGIC;
}

/* There is a group of all ranks, or none any more: who waits goes on. */
PH_OFFERED void pacehound_hold_world(bool is_there) {
    atomic_store(&has_world, is_there);
    if (!is_there) ph_trap_abandon();
}

/* A collective of the group of all ranks is launched. */
PH_OFFERED void pacehound_hold_launched(void) {
    struct ph_control *control = atomic_load_explicit(&ph_process.control, memory_order_relaxed);
    atomic_fetch_add_explicit(&control->world_launched, 1, memory_order_release);
}

/* Whether somebody asks this process to stop; a call that is about to be made then looks. */
PH_OFFERED bool pacehound_hold_asked(void) {
    struct ph_control *control = atomic_load_explicit(&ph_process.control, memory_order_relaxed);
    return atomic_load_explicit(&control->trap_id, memory_order_relaxed) !=
           atomic_load_explicit(&ph_trap_answered, memory_order_relaxed);
}

/* Stops here if the trap says so; returns when the hold is over. */
PH_OFFERED void pacehound_hold_look(void) {
    see_context();
    ph_trap_look();
}

/* Whether it is the turn of a call on a device, with this number, to be timed. */
PH_OFFERED bool pacehound_hold_wants(int64_t seq) {
    if (PH_UNLIKELY(!atomic_load_explicit(&context, memory_order_relaxed))) see_context(); /* its events can be made */
    ph_timing_check();
    return ph_timing_wants(seq);
}

/* Kernels of one communicator, or of one pair in it, run one after the other. */
static uintptr_t order_of(const struct ph_record *record) {
    uint64_t order;
    memcpy(&order, record->handle, sizeof order);
    if (record->call.direction != PH_NONE) order ^= (uint64_t)(record->call.peer + 2) * 0x9e3779b97f4a7c15u;
    return (uintptr_t)order;
}

/* The call of this PH_LAUNCH record, of which all is given that follows the stamp, is about to be launched from `stream`:
 * its first event. NULL: it is not timed. Else the record has to carry PH_TIMED, and pacehound_hold_timed to follow. */
PH_OFFERED struct ph_timed *pacehound_hold_time(const void *after_stamp, void *stream) {
    struct ph_record record;
    void *current = see_context();
    memcpy((char *)&record + 8, after_stamp, PH_RECORD_BYTES - 8);
    ph_cuda_start();
    int capture = ph_capture_status(stream);
    if (capture == 1) return NULL;
    struct ph_timed *timed = ph_timing_begin(current, stream, capture, ph_now_ns());
    if (!timed) return NULL;
    timed->order = order_of(&record);
    record.call.flags |= PH_TIMED;
    ph_timing_launched(timed, &record);
    return timed;
}

/* The call has been issued, and is over when `stream` comes to what is recorded now; without `has_end` nobody can say. */
PH_OFFERED void pacehound_hold_timed(struct ph_timed *timed, void *stream, bool has_end) {
    timed->stream = stream;
    ph_timing_end(timed, has_end ? ncclSuccess : (ncclResult_t)3 /* an internal error */);
}

/* A call whose turn it is, and whose end will not be seen. */
PH_OFFERED void pacehound_hold_untimed(void) { ph_timing_left_out(1); }

