/* stub_device.h: streams of a device that is not there: a thread each, which does one thing after the other. */
#ifndef STUB_DEVICE_H
#define STUB_DEVICE_H

#include "nccl_abi.h"

/* One thing to do: `parts` of one group begin together and end together. */
struct stub_work {
    struct stub_work *next;
    long kernel_us;
    void *event; /* recorded here */
    int n_parts;
    struct stub_part {
        struct ncclComm *comm;
        int peer, is_send; /* peer -1: a collective */
        uint64_t number;
    } parts[];
};

/* Hands over `work`; waits while the stream is full, as a launch does. */
void stub_enqueue(cudaStream_t stream, struct stub_work *work);
int stub_is_capturing(cudaStream_t stream);
/* In stub_nccl.c: does the parts, and returns when all of them are done or aborted. */
void stub_run(struct stub_work *work);

/* In stub_events.c: the stream has come to an event. */
void stub_reach(void *event);
/* Whether a capture is going on anywhere, and the calling thread's mode is not relaxed: it may not ask for events. */
int stub_is_forbidden(void);
/* Whether this call of a driver function, named in STUB_CUDA_FAILS ("cuEventRecord 7 700": from the seventh on), fails. */
int stub_error_of(const char *function);

#endif
