/* stub_device.h: streams of a device that is not there: a thread each, which does one thing after the other. */
#ifndef STUB_DEVICE_H
#define STUB_DEVICE_H

#include "nccl_abi.h"

/* One thing to do: `parts` of one group begin together and end together. */
struct stub_work {
    struct stub_work *next;
    long kernel_us;
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

#endif
