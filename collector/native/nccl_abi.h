/* nccl_abi.h: the part of NCCL's C interface that the shim stands in front of, declared from its public description
 * (versions 2.18 to 2.30), so that neither NCCL nor CUDA is needed to build. Values and layouts are the ABI's own;
 * tests/native holds them against the real nccl.h where it is installed.
 */
#ifndef PACEHOUND_NCCL_ABI_H
#define PACEHOUND_NCCL_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm *ncclComm_t;
typedef void *cudaStream_t;
typedef int ncclDataType_t, ncclRedOp_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclSystemError = 2,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclInProgress = 7,
} ncclResult_t;

enum { NCCL_CONFIG_MAGIC = (int)0xcafebeef, NCCL_NOCOLOR = -1, NCCL_DATA_TYPES = 12, NCCL_BUILT_IN_REDOPS = 5 };

/* What ncclConfig_t begins with. `size` says how much of it the caller knows: commName came with 2.27. */
typedef struct {
    size_t size;
    unsigned int magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
} ncclConfig_t;

typedef struct ncclSimInfo ncclSimInfo_t;

#endif
