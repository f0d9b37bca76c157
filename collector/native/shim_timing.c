/* Calls timed on the device, on their way: an event before the real call and one after it, where a controller has asked
 * for that (control.h). Off, it costs a look at the control block; on, two event calls per call whose turn it is.
 *
 * Nothing is recorded on a stream that is being captured. Nothing is made per call: a pair of events comes from its
 * context's pool, and where the next one is still on its way the call is not timed. A group is timed as one, if it is of
 * few calls on one stream. A call that the real library has not put on its stream when it returns (a communicator that
 * does not block) has no times. What CUDA refuses ends the timing, never the call.
 */
#define _GNU_SOURCE
#include "timing.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { SPECIAL_STREAMS = 2 }; /* streams 0, 1 and 2 are those of the current context */

struct ph_cuda ph_cuda;
struct ph_pool *_Atomic ph_pools[PH_POOLS];
_Atomic uint64_t ph_timing_seen;
_Atomic uint32_t ph_timing_every, ph_timing_rounds = 1;
_Atomic uint32_t ph_timing_aborts;
_Atomic bool ph_timing_is_broken, ph_timing_is_served, ph_timing_has_thread;
_Atomic uint64_t ph_timing_spent_ns;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of starting and leaving of the thread */

static struct ph_control *control(void) { return atomic_load_explicit(&ph_process.control, memory_order_relaxed); }

void ph_timing_look(void) {
    pthread_mutex_lock(&lock);
    uint64_t id = atomic_load(&control()->timing_id);
    atomic_store(&ph_timing_seen, id);
    if (id == 0) atomic_store(&ph_timing_every, 0); /* the thread sees for itself, and goes */
    else if (!atomic_load(&ph_timing_has_thread)) {
        atomic_store(&ph_timing_has_thread, true);
        atomic_store(&ph_timing_is_served, true);
        if (!ph_timing_start_thread()) {
            atomic_store(&ph_timing_has_thread, false);
            atomic_store(&ph_timing_is_served, false);
            atomic_store(&control()->timing_why, PH_TIMING_WHY_MEMORY);
            atomic_store(&control()->timing_phase, PH_TIMING_OVER);
            atomic_store(&control()->timing_answers_id, id);
        }
    }
    pthread_mutex_unlock(&lock);
}

bool ph_timing_may_go(uint64_t served_id) {
    pthread_mutex_lock(&lock);
    uint64_t id = atomic_load(&control()->timing_id);
    bool may = id == 0 || id == served_id;
    atomic_store(&ph_timing_is_served, !may);
    atomic_store(&ph_timing_has_thread, !may);
    pthread_mutex_unlock(&lock);
    return may;
}

void ph_timing_fail(const char *what, int error) {
    char text[96];
    atomic_store(&ph_timing_every, 0);
    if (atomic_exchange(&ph_timing_is_broken, true)) return;
    snprintf(text, sizeof text, "calls are not timed any more: %s gave CUDA error %d", what, error);
    ph_process_note(text, 0);
}

void ph_timing_left_out(uint32_t n) { atomic_fetch_add_explicit(&control()->untimed, n, memory_order_relaxed); }

static struct ph_pool *pool_of(const void *context) {
    for (int i = 0; i < PH_POOLS; i++) {
        struct ph_pool *pool = atomic_load_explicit(&ph_pools[i], memory_order_acquire);
        if (!pool || pool->context == context) return pool;
    }
    return NULL;
}

/* A free pair of events, for the caller alone; NULL where the next one is on its way. */
static struct ph_timed *take(struct ph_pool *pool, cudaStream_t stream) {
    uint64_t n = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
    struct ph_timed *timed = &pool->pairs[n % PH_PAIRS];
    uint32_t expected = PH_PAIR_FREE;
    if (!atomic_compare_exchange_strong(&timed->state, &expected, PH_PAIR_TAKEN)) return NULL;
    timed->aborts = atomic_load(&ph_timing_aborts);
    timed->stream = stream;
    timed->order = (uintptr_t)stream;
    timed->n_records = 0;
    return timed;
}

/* Whether an event of this context can be recorded on the stream. */
static bool is_of_context(cudaStream_t stream, const void *context) {
    void *current = NULL;
    return (uintptr_t)stream > SPECIAL_STREAMS || (ph_cuda.get_context(&current) == 0 && current == context);
}

static void spend(uint64_t since_ns) {
    atomic_fetch_add_explicit(&ph_timing_spent_ns, ph_now_ns() - since_ns, memory_order_relaxed);
}

static struct ph_timed *begin(void *context, cudaStream_t stream, uint64_t now_ns) {
    struct ph_pool *pool = pool_of(context);
    struct ph_timed *timed = pool && is_of_context(stream, context) ? take(pool, stream) : NULL;
    int error = timed ? ph_cuda.event_record(timed->start, stream) : 0;
    spend(now_ns);
    if (!error) return timed;
    atomic_store(&timed->state, PH_PAIR_FREE);
    ph_timing_fail("cuEventRecord", error);
    return NULL;
}

struct ph_timed *ph_timing_begin(void *context, cudaStream_t stream, int capture, uint64_t now_ns) {
    struct ph_timed *timed = capture == 0 ? begin(context, stream, now_ns) : NULL;
    if (!timed) ph_timing_left_out(1);
    return timed;
}

struct ph_timed *ph_timing_begin_group(const struct ph_thread *self, uint64_t now_ns) {
    const struct ph_waiting *first = &self->waiting[0];
    cudaStream_t stream = (cudaStream_t)(uintptr_t)first->record.call.stream;
    bool can_be = self->n_waiting <= PH_TIMED_CALLS, is_captured = false;
    uint32_t n_wanted = 0;
    for (uint32_t i = 0; i < self->n_waiting; i++) {
        const struct ph_waiting *waiting = &self->waiting[i];
        n_wanted += ph_timing_wants(waiting->record.call.seq);
        is_captured |= (waiting->record.call.flags & PH_CAPTURED) != 0;
        can_be &= waiting->record.call.stream == first->record.call.stream && waiting->comm->context == first->comm->context;
    }
    if (n_wanted == 0 || is_captured) return NULL;
    struct ph_timed *timed = can_be && ph_capture_status(stream) == 0 ? begin(first->comm->context, stream, now_ns) : NULL;
    if (!timed) ph_timing_left_out(n_wanted);
    return timed;
}

void ph_timing_launched(struct ph_timed *timed, const struct ph_record *record) {
    struct ph_record *copy = &timed->records[timed->n_records++];
    memcpy((char *)copy + 8, (const char *)record + 8, PH_RECORD_BYTES - 8);
    copy->kind = PH_COMPLETE;
}

/* The caller has the pair: its calls end without times, in the ring of this thread. */
static void end_without_times(struct ph_timed *timed) {
    struct ph_thread *self = ph_thread();
    for (int32_t i = 0; i < timed->n_records; i++) {
        timed->records[i].call.start_ns = timed->records[i].call.end_ns = 0;
        if (self && atomic_load(&ph_process.is_on)) ph_ring_write(self, &timed->records[i]);
    }
    ph_timing_left_out((uint32_t)timed->n_records);
    atomic_store(&timed->state, PH_PAIR_FREE);
}

bool ph_timing_claim(struct ph_timed *timed) {
    uint32_t expected = PH_PAIR_RECORDED;
    return atomic_compare_exchange_strong(&timed->state, &expected, PH_PAIR_TAKEN);
}

void ph_timing_give_up(struct ph_timed *timed) {
    if (ph_timing_claim(timed)) end_without_times(timed);
}

void ph_timing_end(struct ph_timed *timed, ncclResult_t result) {
    uint64_t begun_ns = ph_now_ns();
    int error = result == ncclSuccess ? ph_cuda.event_record(timed->end, timed->stream) : 0;
    spend(begun_ns);
    if (error) ph_timing_fail("cuEventRecord", error);
    if (result != ncclSuccess || error) {
        end_without_times(timed);
        return;
    }
    atomic_store(&timed->state, PH_PAIR_RECORDED);
    /* The thread may be going. It looks once more after it has said so: one of us sees the other. */
    if (!atomic_load(&ph_timing_is_served)) ph_timing_give_up(timed);
}

void ph_timing_abandon(void) { atomic_fetch_add(&ph_timing_aborts, 1); }

void ph_timing_forget(void) {
    pthread_mutex_init(&lock, NULL);
    for (int i = 0; i < PH_POOLS; i++) atomic_store(&ph_pools[i], NULL); /* the parent's events are not ours */
    atomic_store(&ph_timing_every, 0);
    atomic_store(&ph_timing_seen, 0);
    atomic_store(&ph_timing_is_served, false);
    atomic_store(&ph_timing_has_thread, false);
    atomic_store(&ph_timing_is_broken, false);
}
