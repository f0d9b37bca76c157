/* The thread that collects what shim_timing.c has recorded; it is there while a controller wants calls timed, no longer.
 *
 * It polls the later event of each pair, oldest first, one unfinished pair per order, and writes the calls' PH_COMPLETE
 * into a ring of its own. Its capture mode is relaxed: asking for an event would else break a capture of another thread.
 * It never waits for the device. It also keeps the costs down: while event calls take more than the cap of the calling
 * threads' time, half as many stretches are timed; PH_TIMING_COST_LIMIT times the cap ends it.
 */
#define _GNU_SOURCE
#include "timing.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { NOT_READY = 600, CAPTURE_RELAXED = 2, MAX_STREAMS = 16, IN_A_ROW = 2, MAX_EVERY = 1 << 20, MAX_ROUNDS = 1 << 20 };
enum { BUSY_NS = 1000000, IDLE_NS = 5000000, COST_NS = 250000000, CONTEXTS_NS = 100000000, WINDOW_NS = 1000000000 };
#define DRAIN_NS 1000000000u

/* Copied once, so that later garbage changes nothing. */
struct request {
    uint64_t id, until_ns;
    uint32_t rounds, every, cap_ppm;
};

static _Atomic bool is_ending; /* the process */

static struct ph_control *control(void) { return atomic_load_explicit(&ph_process.control, memory_order_relaxed); }

static uint32_t within(uint32_t value, uint32_t least, uint32_t most) {
    return value < least ? least : value > most ? most : value;
}

static struct request read_request(void) {
    struct ph_control *block = control();
    struct request request = {.id = atomic_load(&block->timing_id), .until_ns = atomic_load(&block->timing_until_ns)};
    uint64_t latest_ns = ph_now_ns() + PH_TIMING_MOST_NS;
    if (request.until_ns > latest_ns) request.until_ns = latest_ns;
    request.rounds = within(atomic_load(&block->timing_rounds), 1, MAX_ROUNDS);
    request.every = within(atomic_load(&block->timing_every), 1, MAX_EVERY);
    request.cap_ppm = within(atomic_load(&block->timing_cap_ppm), 1, 1000000 / PH_TIMING_COST_LIMIT);
    return request;
}

static void answer(const struct request *request, enum ph_timing_phase phase, enum ph_timing_why why) {
    struct ph_control *block = control();
    atomic_store(&block->timing_why, why);
    atomic_store(&block->timing_phase, phase);
    atomic_store(&block->timing_answers_id, request->id);
}

/* Sleeps at most so long. */
static void nap(uint64_t ns) {
    const struct timespec pause = {0, (long)ns};
    nanosleep(&pause, NULL);
}

/* Once per process, before there is any pool. */
static bool find_cuda(void) {
    static bool has_looked;
    if (!has_looked) {
        ph_cuda.event_create = (int (*)(void **, unsigned))ph_cuda_find("cuEventCreate");
        ph_cuda.event_record = (int (*)(void *, cudaStream_t))ph_cuda_find("cuEventRecord");
        ph_cuda.event_query = (int (*)(void *))ph_cuda_find("cuEventQuery");
        ph_cuda.event_elapsed = (int (*)(float *, void *, void *))ph_cuda_find("cuEventElapsedTime");
        ph_cuda.set_context = (int (*)(void *))ph_cuda_find("cuCtxSetCurrent");
        ph_cuda.get_context = (int (*)(void **))ph_cuda_find("cuCtxGetCurrent");
        ph_cuda.exchange_capture_mode = (int (*)(int *))ph_cuda_find("cuThreadExchangeStreamCaptureMode");
    }
    bool is_whole = ph_cuda.event_create && ph_cuda.event_record && ph_cuda.event_query && ph_cuda.event_elapsed &&
                    ph_cuda.set_context && ph_cuda.get_context && ph_cuda.exchange_capture_mode &&
                    ph_cuda_find("cuStreamIsCapturing");
    has_looked = is_whole; /* the driver may be loaded later */
    return is_whole;
}

/* All of its events, or nothing; NULL where CUDA or memory fails. What was made of it before stays: CUDA is broken. */
static struct ph_pool *make_pool(void *context) {
    struct ph_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    pool->context = context;
    int error = ph_cuda.set_context(context);
    if (!error) error = ph_cuda.event_create(&pool->origin, 0);
    for (int i = 0; i < PH_PAIRS && !error; i++) {
        error = ph_cuda.event_create(&pool->pairs[i].start, 0);
        if (!error) error = ph_cuda.event_create(&pool->pairs[i].end, 0);
    }
    if (!error) return pool;
    ph_timing_fail("making events", error);
    free(pool);
    return NULL;
}

/* One pool for each context that has a communicator; false where memory or CUDA fails. */
static bool make_pools(void) {
    void *contexts[PH_POOLS];
    int n = ph_comm_contexts(contexts, PH_POOLS);
    for (int i = 0; i < n; i++) {
        int at = 0;
        struct ph_pool *pool;
        while (at < PH_POOLS && (pool = atomic_load(&ph_pools[at])) && pool->context != contexts[i]) at++;
        if (at == PH_POOLS || pool) continue; /* none free: its calls are left out and counted */
        pool = make_pool(contexts[i]);
        if (!pool) return false;
        atomic_store_explicit(&ph_pools[at], pool, memory_order_release);
    }
    return true;
}

/* An end was at `device_ns`, and is seen now. */
static void see(struct ph_pool *pool, int64_t device_ns, uint64_t now_ns) {
    int64_t difference = (int64_t)now_ns - device_ns;
    if (!pool->has_offset || now_ns - pool->window_ns > WINDOW_NS) {
        pool->last_smallest = pool->has_offset ? pool->now_smallest : difference;
        pool->now_smallest = difference;
        pool->window_ns = now_ns;
        pool->has_offset = true;
    }
    if (difference < pool->now_smallest) pool->now_smallest = difference;
}

static void swap(void **a, void **b) {
    void *other = *a;
    *a = *b;
    *b = other;
}

/* What lies between two events that are over, in nanoseconds; 0, and CUDA is broken, where it does not say. */
static int64_t between_ns(void *start, void *end) {
    float milliseconds = 0;
    int error = ph_cuda.event_elapsed(&milliseconds, start, end);
    if (error) ph_timing_fail("cuEventElapsedTime", error);
    return (int64_t)((double)milliseconds * 1e6);
}

/* A call begins when the one before it in its order has ended, at the earliest: its first event may lie on another stream. */
static int64_t begin_of(struct ph_pool *pool, const struct ph_timed *timed, int64_t start_ns, int64_t end_ns) {
    struct ph_last *last = &pool->last[(timed->order ^ timed->order >> 6 ^ timed->order >> 12) % PH_ORDERS];
    if (last->order == timed->order && last->device_ns > start_ns && last->device_ns <= end_ns) start_ns = last->device_ns;
    *last = (struct ph_last){timed->order, end_ns};
    return start_ns;
}

/* Both events of a pair are over: writes its calls' ends and gives it back. */
static void finish(struct ph_pool *pool, struct ph_timed *timed) {
    uint64_t now_ns = ph_now_ns();
    struct ph_thread *self = ph_thread();
    if (timed->aborts != atomic_load(&ph_timing_aborts)) {
        ph_timing_give_up(timed);
        return;
    }
    int64_t duration_ns = between_ns(timed->start, timed->end);
    int64_t device_ns = pool->has_origin ? pool->origin_ns + between_ns(pool->origin, timed->start) : 0;
    if (atomic_load(&ph_timing_is_broken) || !ph_timing_claim(timed)) return;
    if (!pool->has_origin || device_ns - pool->origin_ns > WINDOW_NS) {
        swap(&pool->origin, &timed->start);
        pool->origin_ns = device_ns;
        pool->has_origin = true;
    }
    if (duration_ns < 0) duration_ns = 0;
    see(pool, device_ns + duration_ns, now_ns);
    int64_t begin_ns = begin_of(pool, timed, device_ns, device_ns + duration_ns);
    duration_ns -= begin_ns - device_ns;
    device_ns = begin_ns;
    int64_t offset_ns = pool->now_smallest < pool->last_smallest ? pool->now_smallest : pool->last_smallest;
    for (int32_t i = 0; i < timed->n_records; i++) {
        struct ph_record *record = &timed->records[i];
        uint64_t start_ns = (uint64_t)(device_ns + offset_ns);
        if (start_ns < record->call.launch_ns) start_ns = record->call.launch_ns;
        uint64_t end_ns = start_ns + (uint64_t)duration_ns;
        record->call.start_ns = start_ns;
        record->call.end_ns = end_ns;
        if (self && atomic_load(&ph_process.is_on)) ph_ring_write(self, record);
    }
    atomic_fetch_add(&control()->timed, (uint64_t)timed->n_records);
    atomic_store(&timed->state, PH_PAIR_FREE);
}

/* Whether a pair is still on its way. Kernels of an order run one by one: it is asked about one pair of each only. */
static bool look_at(struct ph_pool *pool, struct ph_timed *timed, uintptr_t *busy, int *n_busy) {
    uint32_t state = atomic_load(&timed->state);
    if (state != PH_PAIR_RECORDED) return state == PH_PAIR_TAKEN;
    for (int i = 0; i < *n_busy; i++)
        if (busy[i] == timed->order) return true;
    int status = ph_cuda.event_query(timed->end);
    if (status == 0) finish(pool, timed);
    else if (status != NOT_READY) ph_timing_fail("cuEventQuery", status);
    else if (*n_busy < MAX_STREAMS) busy[(*n_busy)++] = timed->order;
    return status != 0;
}

/* How many pairs are on their way; ends those that are over. */
static uint32_t collect(void) {
    uint32_t n_open = 0;
    for (int i = 0; i < PH_POOLS; i++) {
        uintptr_t busy[MAX_STREAMS];
        int n_busy = 0;
        struct ph_pool *pool = atomic_load(&ph_pools[i]);
        if (!pool) break;
        uint64_t after = atomic_load(&pool->next);
        if (after - pool->first > PH_PAIRS) pool->first = after - PH_PAIRS;
        if (pool->first < after) ph_cuda.set_context(pool->context);
        bool is_first = true;
        for (uint64_t n = pool->first; n < after && !atomic_load(&ph_timing_is_broken); n++) {
            bool is_open = look_at(pool, &pool->pairs[n % PH_PAIRS], busy, &n_busy);
            n_open += is_open;
            is_first &= !is_open;
            if (is_first) pool->first = n + 1;
        }
    }
    return n_open;
}

/* What event calls cost, looked at every COST_NS. Once is chance (a thread may lose its core in such a call): it takes
 * IN_A_ROW looks above a limit before anything is done. */
struct costs {
    uint64_t looked_ns, spent_ns;
    int n_above, n_far_above;
    bool has_said;
};

/* Fewer where event calls have taken more than the cap; whether they have taken far too much. */
static bool costs_too_much(struct costs *costs, const struct request *request, uint64_t now_ns) {
    uint64_t spent_ns = atomic_load(&ph_timing_spent_ns), elapsed_ns = now_ns - costs->looked_ns;
    if (elapsed_ns < COST_NS) return false;
    uint64_t share_ppm = (spent_ns - costs->spent_ns) * 1000000 / elapsed_ns;
    uint32_t every = atomic_load(&ph_timing_every);
    costs->looked_ns = now_ns;
    costs->spent_ns = spent_ns;
    costs->n_above = share_ppm > request->cap_ppm ? costs->n_above + 1 : 0;
    costs->n_far_above = share_ppm > (uint64_t)request->cap_ppm * PH_TIMING_COST_LIMIT ? costs->n_far_above + 1 : 0;
    atomic_store(&control()->event_ns, spent_ns);
    if (costs->n_above >= IN_A_ROW && every && every < MAX_EVERY) {
        costs->n_above = 0;
        atomic_store(&ph_timing_every, 2 * every);
        atomic_store(&control()->timing_every_now, 2 * every);
        if (!costs->has_said)
            ph_process_note("fewer calls are timed than was asked for: event calls took more than the cap", 0);
        costs->has_said = true;
    }
    if (costs->n_far_above >= IN_A_ROW)
        ph_process_note("calls are not timed any more: event calls took far more than the cap", 0);
    return costs->n_far_above >= IN_A_ROW;
}

static enum ph_timing_why reason_to_end(const struct request *request, uint64_t now_ns) {
    if (atomic_load(&is_ending) || atomic_load(&control()->timing_id) != request->id) return PH_TIMING_WHY_COMMAND;
    if (atomic_load(&ph_timing_is_broken)) return PH_TIMING_WHY_CUDA;
    return now_ns >= request->until_ns ? PH_TIMING_WHY_TIME : PH_TIMING_WHY_NONE;
}

/* Times calls until there is a reason to end; the reason. */
static enum ph_timing_why serve(const struct request *request) {
    struct costs costs = {.looked_ns = ph_now_ns(), .spent_ns = atomic_load(&ph_timing_spent_ns)};
    uint64_t contexts_ns = 0;
    bool has_begun = false;
    for (;;) {
        uint64_t now_ns = ph_now_ns();
        enum ph_timing_why why = reason_to_end(request, now_ns);
        if (why) return why;
        if (now_ns - contexts_ns > CONTEXTS_NS) {
            contexts_ns = now_ns;
            if (!make_pools() && !atomic_load(&ph_timing_is_broken)) return PH_TIMING_WHY_MEMORY;
            if (atomic_load(&ph_pools[0]) && !has_begun) {
                has_begun = true;
                atomic_store(&ph_timing_rounds, request->rounds);
                atomic_store(&control()->timing_every_now, request->every);
                atomic_store(&ph_timing_every, request->every);
                answer(request, PH_TIMING_ON, PH_TIMING_WHY_NONE);
            }
        }
        if (costs_too_much(&costs, request, now_ns)) return PH_TIMING_WHY_COST;
        nap(collect() ? BUSY_NS : IDLE_NS);
    }
}

/* What is on its way may end in time; the rest, and what comes from now on, ends without times. */
static void drain(void) {
    uint64_t until_ns = ph_now_ns() + DRAIN_NS;
    atomic_store(&ph_timing_every, 0);
    while (!atomic_load(&is_ending) && !atomic_load(&ph_timing_is_broken) && collect() && ph_now_ns() < until_ns)
        nap(BUSY_NS);
    atomic_store(&control()->event_ns, atomic_load(&ph_timing_spent_ns));
    atomic_store(&ph_timing_is_served, false);
    struct ph_pool *pool;
    for (int i = 0; i < PH_POOLS && (pool = atomic_load(&ph_pools[i])); i++)
        for (int j = 0; j < PH_PAIRS; j++) ph_timing_give_up(&pool->pairs[j]);
}

static void *run(void *unused) {
    int mode = CAPTURE_RELAXED;
    uint64_t served_id;
    (void)unused;
    pthread_setname_np(pthread_self(), "pacehound-time");
    do {
        struct request request = read_request();
        enum ph_timing_why why = PH_TIMING_WHY_NO_CUDA;
        served_id = request.id;
        if (request.id) answer(&request, PH_TIMING_STARTING, PH_TIMING_WHY_NONE);
        if (request.id && find_cuda()) {
            ph_cuda.exchange_capture_mode(&mode);
            mode = CAPTURE_RELAXED;
            why = serve(&request);
        }
        drain();
        if (request.id) answer(&request, why == PH_TIMING_WHY_COMMAND ? PH_TIMING_OFF : PH_TIMING_OVER, why);
    } while (!ph_timing_may_go(served_id));
    return NULL;
}

/* Before the driver's own end: nobody may ask it anything after that. */
static void end_with_process(void) {
    atomic_store(&is_ending, true);
    for (int i = 0; i < 200 && atomic_load(&ph_timing_has_thread); i++) nap(BUSY_NS);
}

bool ph_timing_start_thread(void) {
    static bool has_handler;
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, before;
    if (!has_handler) atexit(end_with_process);
    has_handler = true;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* the job's signals are for the job's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &detached, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return error == 0;
}
