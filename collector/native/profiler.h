/* profiler.h: what the files of the NCCL profiler plugin share. Nothing here is seen outside of the library. */
#ifndef PACEHOUND_PROFILER_H
#define PACEHOUND_PROFILER_H

#include <pthread.h>

#include "frame.h"
#include "profiler_abi.h"
#include "shim.h"

/* --- profiler_names.c: NCCL's names as codes, 0 where one is not known; can't fail ------------------------------ */

uint8_t ph_code_of_function(const char *name);  /* position in OPS of pacehound/model/codes.py */
uint8_t ph_code_of_datatype(const char *name);  /* DTYPES */
uint8_t ph_code_of_algorithm(const char *name); /* ALGORITHMS */
uint8_t ph_code_of_protocol(const char *name);  /* PROTOCOLS */

/* --- profiler_refusal.c ----------------------------------------------------------------------------------------- */

/* Why the plugin does no work with this version of NCCL (as ncclGetVersion says it; 0: not known); NULL: it does. */
const char *ph_refused_version(int version);
/* Why it is not asked for kernel events, so that nobody is told when calls end; NULL: it is asked for them. */
const char *ph_no_kernel_events(int version);
/* The version of the NCCL that has this function; 0 where it does not say. */
int ph_version_behind(ph_nccl_log_t log);
/* Whether there is so little shared memory that NCCL itself would crash with the plugin. */
bool ph_shared_memory_is_short(void);

/* --- profiler_handles.c: what NCCL keeps for us ----------------------------------------------------------------- */

/* A handle is a number, never an address: NCCL uses handles after their end, after the end of their communicator, and
 * (PXN) in processes other than the one that made them. Whatever comes, finding out that it is stale touches only
 * memory that is never given back. */
enum ph_handle_kind { PH_HANDLE_COMM = 1, PH_HANDLE_GROUP, PH_HANDLE_CALL, PH_HANDLE_KERNEL, PH_HANDLE_OP, PH_HANDLE_STEP };

struct ph_handle {
    enum ph_handle_kind kind;
    uint32_t comm, part, generation, slot; /* part: the channel of a kernel event, the step of a transfer, modulo 8 */
    uint32_t group;                        /* of PH_HANDLE_GROUP: the low bits of its number */
};

enum { PH_MAX_COMMS = 1 << 10, PH_MAX_SLOTS = 1 << 12 };
#define PH_GENERATION_MASK 0x1ffffu
#define PH_GROUP_MASK 0x1fffffffu

void *ph_handle_pack(struct ph_handle handle);
/* false: not one of ours. */
bool ph_handle_unpack(const void *packed, struct ph_handle *handle);
/* Every handle given out so far is stale (in a forked child, and once at the start). */
void ph_handles_renew(uint64_t seed);

/* --- profiler_call.c: one call, from its events to its end ------------------------------------------------------ */

/* How far the GPU's clock is from ours, from below: an event is told after it happened, so the smallest difference of
 * the last seconds is nearest. Kept in two windows, for clocks drift. */
struct ph_gpu_clock {
    int64_t offset_ns, window_ns, now_smallest, last_smallest;
    bool is_known;
};
void ph_gpu_clock_seen(struct ph_gpu_clock *clock, uint64_t gpu_ns, uint64_t now_ns);
uint64_t ph_gpu_clock_map(const struct ph_gpu_clock *clock, uint64_t gpu_ns);

/* Transfers in one direction, and in how many milliseconds there were any (CCL-D 4.1.2). */
struct ph_transfers {
    int64_t count; /* -1: none of this call's transfers was ever told of */
    uint64_t last_window;
    uint32_t n_windows;
};
void ph_transfers_add(struct ph_transfers *transfers, int64_t n, uint64_t now_ns);

enum ph_block { PH_BLOCK_NOT_ASKED = -1, PH_BLOCK_NONE = -2 };

struct ph_call {
    uint32_t generation;
    bool is_open;
    uint8_t n_channels; /* 0: NCCL did not say */
    int8_t block;       /* in the probing frame, or one of enum ph_block */
    int32_t before, after; /* in the list of open calls, oldest first; -1: none */
    uint64_t group;
    struct ph_record record; /* its PH_LAUNCH */
    uint64_t started, stopped; /* a bit per channel */
    uint32_t n_open_ops;
    uint64_t gpu_start_ns, gpu_end_ns, told_end_ns; /* 0: not seen */
    bool has_gaps;                                  /* an instant is missing or made no sense */
    uint64_t passed_ns, passed_start_ns; /* a call of a later kernel was seen to be done at, which began at; 0: none */
    struct ph_transfers sent, received;
};

/* Kernel events. Each may be missing, come twice, or come before the one that it follows. */
bool ph_call_kernel_start(struct ph_call *call, struct ph_gpu_clock *clock, uint8_t channel, uint64_t gpu_ns,
                          uint64_t now_ns);
void ph_call_kernel_stop(struct ph_call *call, struct ph_gpu_clock *clock, uint8_t channel, uint64_t gpu_ns,
                         uint64_t now_ns); /* gpu_ns 0: its time was not told */
bool ph_call_is_done(const struct ph_call *call);
/* Its PH_COMPLETE, and when the call began (0: not known). */
struct ph_record ph_call_complete(const struct ph_call *call, const struct ph_gpu_clock *clock, uint64_t now_ns);

/* --- profiler_comms.c: communicators and their pools ------------------------------------------------------------- */

struct ph_op { /* a call's transfers on one channel */
    uint32_t generation, call_generation;
    int32_t call, next_free;
    bool is_open, is_send;
    uint8_t channel;
    uint8_t open_steps; /* a bit per step modulo 8 */
    int32_t n_steps, n_done;
};

enum { PH_MAX_EDGES = 256 }; /* two rings and two trees on eight channels have 128 ends at a rank */

struct ph_profiled {
    pthread_mutex_t lock; /* of all that follows; held for some tens of nanoseconds, never over a system call */
    uint32_t index, generation;
    bool is_live;
    uint8_t handle[16];
    int32_t rank, size;
    uint32_t world_rank;
    struct ph_frame *frame; /* its rank's; NULL where there is none. Never given back. */
    struct ph_gpu_clock clock;
    uint64_t n_groups;
    int64_t collectives, *pairs; /* the next numbers; pairs: 2 * peer + (direction - 1) */
    int32_t n_pairs;
    uint64_t nccl_next[16]; /* per function: the number that NCCL should say next */
    uint64_t edges[PH_MAX_EDGES]; /* what was told of where calls send and receive: packed, 0 where there is none yet */
    int32_t oldest, newest, free_call, n_calls, free_op, n_ops;
    struct ph_call *calls; /* PH_MAX_SLOTS of address space; pages come with use. Never given back. */
    struct ph_op *ops;
    struct ph_profiled *next_free;
    uint64_t first_launch_ns, n_launched, n_missed, n_foreign, n_gaps;
    bool has_kernel_events, is_given_up;
    bool is_mapped;          /* `handle` is the shim's */
    bool is_without_kernels; /* it is not asked for them: calls are launched, and nobody knows when they end */
    int32_t n_open;
};

/* The shim is in this process and tells of all calls, for NCCL does not tell us when they end; NULL: we tell of them. It
 * gives its id of the communicator of what is being launched on this thread, and then edges are of that one. */
typedef bool (*ph_shim_current_t)(int32_t size, int32_t rank, uint8_t handle[16]);
extern _Atomic(ph_shim_current_t) ph_shim_current;

/* A communicator begins, or NULL where there is no room; its records are written. */
struct ph_profiled *ph_profiled_begin(uint64_t comm_hash, const char *name, int n_ranks, int rank);
/* It ends: open calls are given up. */
void ph_profiled_end(struct ph_profiled *comm);
/* Locked, or NULL where the handle's communicator is another one now (or there is none). */
struct ph_profiled *ph_profiled_lock(const struct ph_handle *handle);
/* The slot's call or op, NULL where the handle is stale. With the lock. */
struct ph_call *ph_call_of(struct ph_profiled *comm, const struct ph_handle *handle);
struct ph_op *ph_op_of(struct ph_profiled *comm, const struct ph_handle *handle);
/* A new one; -1 where the pool is full. With the lock. */
int32_t ph_call_open(struct ph_profiled *comm);
int32_t ph_op_open(struct ph_profiled *comm);
void ph_op_close(struct ph_profiled *comm, struct ph_op *op);
/* The call is done: write its PH_COMPLETE, note which older calls must be, and end those that have been for a while. */
void ph_call_close(struct ph_profiled *comm, struct ph_call *call, uint64_t now_ns);
/* End calls whose records are missing. */
void ph_calls_sweep(struct ph_profiled *comm, uint64_t now_ns);

/* Of a call, an op or what belongs to one. */
void *ph_handle_of(enum ph_handle_kind kind, const struct ph_profiled *comm, uint32_t slot, uint32_t generation,
                   uint32_t part);

/* --- profiler_frame.c: how far running calls have come (frame.h) --------------------------------------------------- */

/* The frame of a rank of this process; NULL where there is none. Any thread; not per event, it may make a file. */
struct ph_frame *ph_frame_of(int32_t rank);
/* A call runs: a block for it, where there is one and it was not asked for before. Can't fail. As the two below: with
 * the lock of the call's communicator, and nothing happens without a frame. */
void ph_frame_begin(struct ph_frame *frame, struct ph_call *call);
/* So many more transfers of one of its ops are announced, and done. */
void ph_frame_count(struct ph_frame *frame, const struct ph_call *call, const struct ph_op *op, int announced, int done);
/* It is over, or given up: its block may be another's, and holds its counts until then. */
void ph_frame_end(struct ph_frame *frame, struct ph_call *call);
void ph_frames_forget(void); /* in a forked child */

/* --- profiler_tasks.c: a call is enqueued -------------------------------------------------------------------------- */

/* Its handle, NULL where it is not followed. With the lock, and with a ring. */
void *ph_task_start(struct ph_profiled *comm, const struct ph_profile_event *event, uint64_t type, const void *group);

#endif
