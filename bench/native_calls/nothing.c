/* An NCCL that does nothing, so that what is measured is what stands before it. With DRIVER, a CUDA driver that does as
 * much. */
#include "nccl_abi.h"

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) { return id->internal[0] = 1, ncclSuccess; }
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank) {
    (void)size, (void)id, (void)rank;
    *comm = (ncclComm_t)(uintptr_t)0x10000;
    return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    (void)in, (void)out, (void)n, (void)type, (void)op, (void)comm, (void)stream;
    return ncclSuccess;
}
ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    (void)in, (void)n, (void)type, (void)peer, (void)comm, (void)stream;
    return ncclSuccess;
}
ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    (void)out, (void)n, (void)type, (void)peer, (void)comm, (void)stream;
    return ncclSuccess;
}
ncclResult_t ncclGroupStart(void) { return ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return ncclSuccess; }

#ifdef DRIVER
static char context, event;

int cuStreamIsCapturing(cudaStream_t stream, int *status) { return (void)stream, *status = 0; }
int cuThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0; }
int cuCtxGetCurrent(void **current) { return *current = &context, 0; }
int cuCtxSetCurrent(void *current) { return current != &context; }
int cuEventCreate(void **made, unsigned flags) { return *made = &event, (int)flags; }
int cuEventRecord(void *of, cudaStream_t stream) { return (void)of, (void)stream, 0; }
int cuEventQuery(void *of) { return of != &event; }
int cuEventElapsedTime(float *milliseconds, void *start, void *end) { return *milliseconds = 0, start != end; }
#endif
