/* profiler_abi.h: the part of NCCL's profiler plugin interface, versions 4 to 6, that our plugin uses, declared from
 * its public description (NVIDIA/nccl, plugins/profiler: README and the headers of each version). Layouts and numbers
 * are the ABI's own.
 *
 * The three versions differ little. All hand over an event as: its type, its parent, the rank, and at offset 24 what is
 * known about it. Version 4 has the type in one byte and leaves the other seven as they were, 5 and 6 have it in eight.
 * The parent of a call is its group in version 4, and the event of the API call from 5 on, where the group follows at
 * the end of the body. Version 6 adds events of copy engines, which are not asked for. `init` has another order of
 * arguments from version 5 on.
 */
#ifndef PACEHOUND_PROFILER_ABI_H
#define PACEHOUND_PROFILER_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "nccl_abi.h"

enum ph_profile_type { /* bits of the mask that `init` gives back, and an event's type */
    PH_PROFILE_GROUP = 1 << 0,      /* what is launched as one kernel */
    PH_PROFILE_COLL = 1 << 1,       /* a collective; over when it is enqueued */
    PH_PROFILE_P2P = 1 << 2,        /* a send or a receive; over when it is enqueued */
    PH_PROFILE_PROXY_OP = 1 << 3,   /* a call's network transfers on one channel, in one direction */
    PH_PROFILE_PROXY_STEP = 1 << 4, /* one of those transfers */
    PH_PROFILE_KERNEL_CH = 1 << 6,  /* a call's part of the kernel on one channel */
};

enum { PH_STATE_KERNEL_STOP = 22 }; /* the only change of state that we read; its argument is the GPU's time */

struct ph_profile_coll {
    uint64_t seq; /* counts per function, not per communicator */
    const char *func;
    const void *send_buffer;
    void *recv_buffer;
    size_t count;
    int root;
    const char *datatype;
    uint8_t n_channels, n_warps;
    const char *algorithm, *protocol;
    void *group; /* from version 5 on */
};

struct ph_profile_p2p {
    const char *func;
    void *buffer;
    const char *datatype;
    size_t count;
    int peer;
    uint8_t n_channels;
    void *group; /* from version 5 on */
};

struct ph_profile_proxy_op {
    pid_t pid; /* whose call it is: with PXN another process's, and then parent and context are addresses there */
    uint8_t channel;
    int peer, n_steps, chunk_bytes, is_send;
};

struct ph_profile_kernel {
    uint8_t channel;
    uint64_t gpu_ns; /* the GPU's global timer at the start */
};

struct ph_profile_event {
    union {
        uint8_t type_v4;
        uint64_t type;
    };
    void *parent;
    int rank;
    union {
        struct ph_profile_coll coll;
        struct ph_profile_p2p p2p;
        struct ph_profile_proxy_op proxy_op;
        struct {
            int step;
        } proxy_step;
        struct ph_profile_kernel kernel;
    };
};

union ph_profile_state {
    size_t transferred_bytes;
    uint64_t gpu_ns;
    void *data;
};

typedef void (*ph_nccl_log_t)(int level, unsigned long flags, const char *file, int line, const char *format, ...);
typedef ncclResult_t (*ph_profile_start_t)(void *context, void **handle, struct ph_profile_event *event);
typedef ncclResult_t (*ph_profile_stop_t)(void *handle);
typedef ncclResult_t (*ph_profile_record_t)(void *handle, int state, union ph_profile_state *arguments);
typedef ncclResult_t (*ph_profile_finalize_t)(void *context);

struct ph_profiler_v4 {
    const char *name;
    ncclResult_t (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_hash, int n_nodes, int n_ranks,
                         int rank, ph_nccl_log_t log);
    ph_profile_start_t start;
    ph_profile_stop_t stop;
    ph_profile_record_t record;
    ph_profile_finalize_t finalize;
};

struct ph_profiler_v5 { /* and 6 */
    const char *name;
    ncclResult_t (*init)(void **context, uint64_t comm_hash, int *mask, const char *comm_name, int n_nodes, int n_ranks,
                         int rank, ph_nccl_log_t log);
    ph_profile_start_t start;
    ph_profile_stop_t stop;
    ph_profile_record_t record;
    ph_profile_finalize_t finalize;
};

_Static_assert(offsetof(struct ph_profile_event, parent) == 8, "the parent stands after eight bytes of type");
_Static_assert(offsetof(struct ph_profile_event, coll) == 24, "what is known stands at 24");
_Static_assert(offsetof(struct ph_profile_event, coll.group) == 104, "the group of a collective stands at 104");
_Static_assert(offsetof(struct ph_profile_event, p2p.group) == 64, "the group of a pair stands at 64");
_Static_assert(offsetof(struct ph_profile_event, kernel.gpu_ns) == 32, "the GPU's time stands at 32");

#endif
