/* The stub's device: streams, kernels, captures, and the few driver functions that the shim asks for. */
#define _GNU_SOURCE
#include "stub_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "stub_nccl.h"

enum { MAX_STREAMS = 64, QUEUE = 256 };

static struct stream {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct stub_work *first, **last;
    int outstanding, is_capturing, has_thread;
} streams[MAX_STREAMS];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local int capture_mode; /* 2: relaxed */

static void make(void) {
    for (int i = 0; i < MAX_STREAMS; i++) {
        pthread_mutex_init(&streams[i].lock, NULL);
        pthread_cond_init(&streams[i].changed, NULL);
        streams[i].last = &streams[i].first;
    }
}

static struct stream *get(cudaStream_t stream) {
    pthread_once(&once, make);
    return &streams[(uintptr_t)stream % MAX_STREAMS];
}

static void *serve(void *argument) {
    struct stream *self = argument;
    for (;;) {
        pthread_mutex_lock(&self->lock);
        while (!self->first) pthread_cond_wait(&self->changed, &self->lock);
        struct stub_work *work = self->first;
        self->first = work->next;
        if (!self->first) self->last = &self->first;
        pthread_mutex_unlock(&self->lock);
        if (work->kernel_us > 0) usleep((useconds_t)work->kernel_us);
        stub_run(work);
        if (work->event) stub_reach(work->event);
        free(work);
        pthread_mutex_lock(&self->lock);
        self->outstanding--;
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->lock);
    }
    return NULL;
}

void stub_enqueue(cudaStream_t stream, struct stub_work *work) {
    struct stream *self = get(stream);
    pthread_mutex_lock(&self->lock);
    if (!self->has_thread) {
        pthread_t thread;
        self->has_thread = 1;
        pthread_create(&thread, NULL, serve, self);
        pthread_detach(thread);
    }
    while (self->outstanding >= QUEUE) pthread_cond_wait(&self->changed, &self->lock);
    work->next = NULL;
    *self->last = work;
    self->last = &work->next;
    self->outstanding++;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

void stub_kernel(cudaStream_t stream, long microseconds) {
    struct stub_work *work = calloc(1, sizeof *work);
    work->kernel_us = microseconds;
    stub_enqueue(stream, work);
}

void stub_synchronize(cudaStream_t stream) {
    struct stream *self = get(stream);
    pthread_mutex_lock(&self->lock);
    while (self->outstanding > 0) pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
}

void stub_capture(cudaStream_t stream, int is_on) {
    struct stream *self = get(stream);
    pthread_mutex_lock(&self->lock);
    self->is_capturing = is_on;
    pthread_mutex_unlock(&self->lock);
}

int stub_is_capturing(cudaStream_t stream) {
    struct stream *self = get(stream);
    pthread_mutex_lock(&self->lock);
    int is_on = self->is_capturing;
    pthread_mutex_unlock(&self->lock);
    return is_on;
}

/* The driver. */

int cuStreamIsCapturing(cudaStream_t stream, int *status);
int cuStreamIsCapturing(cudaStream_t stream, int *status) {
    *status = stub_is_capturing(stream);
    return 0;
}

int cuCtxGetCurrent(void **context);
int cuCtxGetCurrent(void **context) {
    *context = streams;
    return 0;
}

int cuCtxSetCurrent(void *context);
int cuCtxSetCurrent(void *context) { return context == streams ? 0 : 201; }

int cuThreadExchangeStreamCaptureMode(int *mode);
int cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return 0;
}

int stub_is_forbidden(void) {
    int is_any = 0;
    for (uintptr_t i = 0; i < MAX_STREAMS; i++) is_any |= stub_is_capturing((cudaStream_t)i);
    return is_any && capture_mode != 2;
}

int cuCtxSynchronize(void) {
    for (uintptr_t i = 0; i < MAX_STREAMS; i++) stub_synchronize((cudaStream_t)i);
    return 0;
}
