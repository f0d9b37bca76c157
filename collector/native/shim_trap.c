/* The trap (Falcon 4.3): stop at the first call after an agreed round, until a controller says so or time is up.
 *
 * What control.h promises is kept here, whatever stands in the control block: a hold ends when the controller says
 * so, when its heartbeat is older than DEAD_NS (or lies ahead), when validation has not begun GATHER_NS after this
 * process was held, after hold_ms, after a quarter of timeout_ms, and after MOST_NS. Nothing is held inside a group,
 * in an initialisation or an abort, or when the call goes into a graph: nobody asks then.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#define DEAD_NS 2000000000u
#define AHEAD_NS 1000000000u
#define GATHER_NS 20000000000u
#define MOST_NS 120000000000u
enum { POLL_NS = 1000000, MAX_CONTEXTS = 64 };

_Atomic uint64_t ph_trap_answered;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The trap that this process is in, with the lock; copied once, so that later garbage changes no limit. */
static struct {
    uint64_t id, round, limit_ns, arrived_ns;
    enum ph_trap_phase phase;
} trap;

static bool is_alive(const struct ph_control *control, uint64_t now_ns) {
    uint64_t beat_ns = atomic_load_explicit(&control->heartbeat_ns, memory_order_relaxed);
    return beat_ns > now_ns ? beat_ns - now_ns < AHEAD_NS : now_ns - beat_ns < DEAD_NS;
}

/* With the lock. */
static void answer(struct ph_control *control, enum ph_trap_phase phase, enum ph_trap_why why) {
    trap.phase = phase;
    atomic_store(&control->why, why);
    if (phase == PH_TRAP_RELEASED) atomic_store(&control->released_ns, ph_now_ns());
    atomic_store(&control->phase, phase);
    atomic_store(&control->answers_id, trap.id);
    if (phase == PH_TRAP_RELEASED || phase == PH_TRAP_REFUSED) atomic_store(&ph_trap_answered, trap.id);
}

/* With the lock: a trap that was not seen before. */
static void meet(struct ph_control *control, uint64_t id, uint64_t now_ns) {
    uint64_t hold_ns = atomic_load(&control->hold_ms) * (uint64_t)1000000;
    uint64_t quarter_ns = atomic_load(&control->timeout_ms) * (uint64_t)250000;
    trap.id = id;
    trap.round = atomic_load(&control->round);
    trap.limit_ns = hold_ns < quarter_ns ? hold_ns : quarter_ns;
    if (trap.limit_ns > MOST_NS) trap.limit_ns = MOST_NS;
    trap.arrived_ns = 0;
    atomic_store(&control->arrived_ns, 0);
    atomic_store(&control->drained_ns, 0);
    atomic_store(&control->released_ns, 0);
    if (atomic_load(&control->command) == PH_RELEASE) answer(control, PH_TRAP_REFUSED, PH_WHY_COMMAND);
    else if (!is_alive(control, now_ns)) answer(control, PH_TRAP_REFUSED, PH_WHY_DEAD);
    else if (trap.limit_ns == 0) answer(control, PH_TRAP_REFUSED, PH_WHY_NO_LIMIT);
    else if (!ph_comm_world()) answer(control, PH_TRAP_REFUSED, PH_WHY_NO_WORLD);
    else if (atomic_load(&control->world_launched) > trap.round) answer(control, PH_TRAP_REFUSED, PH_WHY_PASSED);
    else answer(control, PH_TRAP_ARMED, PH_WHY_NONE);
}

/* Waits, in a thread of its own, until the devices have done all they were given: that may be never. In relaxed
 * capture mode, so that a capture of another thread is not disturbed. */
static void *drain(void *argument) {
    int (*set)(void *) = (int (*)(void *))ph_cuda_find("cuCtxSetCurrent");
    int (*synchronize)(void) = (int (*)(void))ph_cuda_find("cuCtxSynchronize");
    int (*exchange)(int *) = (int (*)(int *))ph_cuda_find("cuThreadExchangeStreamCaptureMode");
    uint64_t id = (uint64_t)(uintptr_t)argument;
    void *contexts[MAX_CONTEXTS];
    int n = ph_comm_contexts(contexts, MAX_CONTEXTS), relaxed = 2;
    if (n >= 0 && (!set || !synchronize || n == 0)) return NULL; /* nobody can know: never drained, never validated */
    if (exchange) exchange(&relaxed);
    for (int i = 0; i < n; i++)
        if (set(contexts[i]) != 0 || synchronize() != 0) return NULL;
    struct ph_control *control = atomic_load(&ph_process.control);
    pthread_mutex_lock(&lock);
    if (trap.id == id && trap.phase == PH_TRAP_HELD) atomic_store(&control->drained_ns, ph_now_ns());
    pthread_mutex_unlock(&lock);
    return NULL;
}

static enum ph_trap_why reason_to_go(const struct ph_control *control, uint64_t now_ns) {
    uint32_t command = atomic_load(&control->command);
    uint64_t held_ns = now_ns - trap.arrived_ns;
    if (atomic_load(&control->trap_id) != trap.id || (command != PH_GATHERING && command != PH_VALIDATING))
        return PH_WHY_COMMAND;
    if (!is_alive(control, now_ns)) return PH_WHY_DEAD;
    if (command != PH_VALIDATING && held_ns > GATHER_NS) return PH_WHY_LATE;
    return held_ns > trap.limit_ns ? PH_WHY_LIMIT : PH_WHY_NONE;
}

/* The first thread that comes is the one that arrives; others that come during the hold wait with it. */
static void hold(struct ph_control *control) {
    const struct timespec pause = {0, POLL_NS};
    uint64_t id = trap.id;
    if (trap.phase == PH_TRAP_ARMED) {
        pthread_t thread;
        pthread_attr_t detached;
        sigset_t all, before;
        trap.arrived_ns = ph_now_ns();
        atomic_store(&control->arrived_ns, trap.arrived_ns);
        answer(control, PH_TRAP_HELD, PH_WHY_NONE);
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        sigfillset(&all); /* the job's signals are for the job's threads */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pthread_create(&thread, &detached, drain, (void *)(uintptr_t)id); /* without it: never drained */
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&detached);
    }
    while (trap.id == id && trap.phase == PH_TRAP_HELD) {
        enum ph_trap_why why = reason_to_go(control, ph_now_ns());
        if (why) {
            answer(control, PH_TRAP_RELEASED, why);
            return;
        }
        pthread_mutex_unlock(&lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&lock);
    }
}

void ph_trap_look(void) {
    struct ph_control *control = atomic_load(&ph_process.control);
    pthread_mutex_lock(&lock);
    uint64_t id = atomic_load(&control->trap_id), now_ns = ph_now_ns();
    if (id == 0 || id == atomic_load(&ph_trap_answered)) {
        if (id == 0) atomic_store(&ph_trap_answered, 0);
    } else {
        if (trap.phase == PH_TRAP_HELD && trap.id != id) answer(control, PH_TRAP_RELEASED, PH_WHY_COMMAND);
        if (trap.id != id) meet(control, id, now_ns);
        if (trap.phase == PH_TRAP_ARMED && !is_alive(control, now_ns)) answer(control, PH_TRAP_REFUSED, PH_WHY_DEAD);
        else if (trap.phase == PH_TRAP_ARMED && atomic_load(&control->command) == PH_RELEASE)
            answer(control, PH_TRAP_RELEASED, PH_WHY_COMMAND);
        else if (trap.phase == PH_TRAP_HELD ||
                 (trap.phase == PH_TRAP_ARMED && atomic_load(&control->world_launched) > trap.round))
            hold(control);
    }
    pthread_mutex_unlock(&lock);
}

void ph_trap_abandon(void) {
    pthread_mutex_lock(&lock);
    if (trap.phase == PH_TRAP_HELD) answer(atomic_load(&ph_process.control), PH_TRAP_RELEASED, PH_WHY_ABORT);
    pthread_mutex_unlock(&lock);
}

void ph_trap_forget(void) {
    pthread_mutex_init(&lock, NULL);
    trap.id = 0;
    trap.phase = PH_TRAP_NONE;
    atomic_store(&ph_trap_answered, 0);
}
