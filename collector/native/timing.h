/* timing.h: what the calling side (shim_timing.c) and the collecting thread (shim_timing_thread.c) share. */
#ifndef PACEHOUND_TIMING_H
#define PACEHOUND_TIMING_H

#include "shim.h"

enum { PH_TIMED_CALLS = 8, PH_PAIRS = 1024, PH_POOLS = 64, PH_ORDERS = 64 };

/* Of the CUDA driver, found at run time; set before the first pool is there. */
struct ph_cuda {
    int (*event_create)(void **event, unsigned flags);
    int (*event_record)(void *event, cudaStream_t stream);
    int (*event_query)(void *event);
    int (*event_elapsed)(float *milliseconds, void *start, void *end);
    int (*set_context)(void *context);
    int (*get_context)(void **context);
    int (*exchange_capture_mode)(int *mode);
};
extern struct ph_cuda ph_cuda;

/* FREE -> TAKEN by a caller, -> RECORDED by it when both events are on the stream, -> FREE by whoever writes the end. */
enum ph_pair_state { PH_PAIR_FREE = 0, PH_PAIR_TAKEN = 1, PH_PAIR_RECORDED = 2 };

struct ph_timed {
    _Atomic uint32_t state;
    uint32_t aborts; /* how many there had been when it was taken */
    void *start, *end;
    cudaStream_t stream;
    uintptr_t order; /* pairs of one order end one after the other: those of a stream, or of a communicator */
    int32_t n_records;
    struct ph_record records[PH_TIMED_CALLS];
};

/* The pairs of events of one context, made beforehand and kept for the life of the process. */
struct ph_pool {
    void *context;
    _Atomic uint64_t next; /* pair `next % PH_PAIRS` is taken next, if it is free by then */
    /* Of the collecting thread alone. Device time counts from the event `origin`, which moves on with it: the driver
     * gives differences as floats, and large ones are coarse. */
    uint64_t first; /* pairs before this one are free */
    void *origin;
    int64_t origin_ns;
    bool has_origin, has_offset;
    /* Device time + offset = CLOCK_MONOTONIC. An end is seen late, never early: the smallest difference of two windows. */
    int64_t now_smallest, last_smallest;
    uint64_t window_ns;
    struct ph_last { /* the last end of an order, in device time: who shares a place with it takes it over */
        uintptr_t order;
        int64_t device_ns;
    } last[PH_ORDERS];
    struct ph_timed pairs[PH_PAIRS];
};
extern struct ph_pool *_Atomic ph_pools[PH_POOLS]; /* from the front; NULL ends them */

extern _Atomic uint32_t ph_timing_aborts; /* of communicators, so far */
extern _Atomic bool ph_timing_is_broken; /* CUDA gave an error */
extern _Atomic bool ph_timing_has_thread;
extern _Atomic bool ph_timing_is_served;    /* the thread will look at what is recorded now */
extern _Atomic uint64_t ph_timing_spent_ns; /* by event calls, of the calling threads */

/* An error of CUDA: nothing is timed any more in this process, and the reason is noted, once. */
void ph_timing_fail(const char *what, int error);
/* `n` calls whose turn it was are not timed. */
void ph_timing_left_out(uint32_t n);
/* Takes a recorded pair to end it; false where another thread has. */
bool ph_timing_claim(struct ph_timed *timed);
/* Ends a recorded pair without times, into the ring of this thread, unless another thread has ended it. */
void ph_timing_give_up(struct ph_timed *timed);
/* Starts the collecting thread; false where that fails. */
bool ph_timing_start_thread(void);
/* Whether the thread, which serves nobody any more, may go: no other request has come. If not, it serves again. */
bool ph_timing_may_go(uint64_t served_id);

#endif
