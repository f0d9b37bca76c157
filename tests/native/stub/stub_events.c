/* The driver's events on the stub's streams. Whoever breaks a rule of captures is aborted, and with it the test. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "stub_device.h"
#include "stub_nccl.h"

enum { INVALID_HANDLE = 400, NOT_READY = 600 };

/* An event that is recorded again has not been reached. */
struct event {
    _Atomic int recorded, reached;
    _Atomic int64_t time_ns;
};

static _Atomic long n_calls;

long stub_event_calls(void) { return atomic_load(&n_calls); }

int stub_error_of(const char *function) {
    static _Atomic long n_of_it;
    const char *said = getenv("STUB_CUDA_FAILS");
    char name[64];
    long from;
    int error;
    atomic_fetch_add(&n_calls, 1);
    if (!said || sscanf(said, "%63s %ld %d", name, &from, &error) != 3 || strcmp(name, function) != 0) return 0;
    return atomic_fetch_add(&n_of_it, 1) + 1 >= from ? error : 0;
}

/* Device time runs beside the host's, from a zero of its own. */
static int64_t device_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - 1234567890123;
}

void stub_reach(void *argument) {
    struct event *event = argument;
    atomic_store(&event->time_ns, device_ns());
    atomic_fetch_add(&event->reached, 1);
}

int cuEventCreate(void **event, unsigned flags);
int cuEventCreate(void **event, unsigned flags) {
    int error = stub_error_of("cuEventCreate");
    if (flags != 0) abort(); /* it could not be timed */
    if (!error) *event = calloc(1, sizeof(struct event));
    return error;
}

int cuEventRecord(void *event, cudaStream_t stream);
int cuEventRecord(void *event, cudaStream_t stream) {
    int error = stub_error_of("cuEventRecord");
    const char *takes_us = getenv("STUB_EVENT_US");
    if (stub_is_capturing(stream)) abort();
    if (error) return error;
    if (takes_us) usleep((useconds_t)atol(takes_us));
    struct stub_work *work = calloc(1, sizeof *work);
    work->event = event;
    atomic_fetch_add(&((struct event *)event)->recorded, 1);
    stub_enqueue(stream, work);
    return 0;
}

static int is_reached(struct event *event) { return atomic_load(&event->reached) == atomic_load(&event->recorded); }

int cuEventQuery(void *event);
int cuEventQuery(void *event) {
    int error = stub_error_of("cuEventQuery");
    if (stub_is_forbidden()) abort();
    return error ? error : is_reached(event) ? 0 : NOT_READY;
}

int cuEventElapsedTime(float *milliseconds, void *start, void *end);
int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    struct event *first = start, *second = end;
    int error = stub_error_of("cuEventElapsedTime");
    if (stub_is_forbidden()) abort();
    if (error) return error;
    if (!atomic_load(&first->recorded) || !atomic_load(&second->recorded)) return INVALID_HANDLE;
    if (!is_reached(first) || !is_reached(second)) return NOT_READY;
    *milliseconds = (float)((double)(atomic_load(&second->time_ns) - atomic_load(&first->time_ns)) / 1e6);
    return 0;
}
