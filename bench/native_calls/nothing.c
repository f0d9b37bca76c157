/* An NCCL that does nothing, so that what is measured is what stands before it. */
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
