/* shim.h: what the files of the NCCL shim share. Nothing here is seen outside of the library. */
#ifndef PACEHOUND_SHIM_H
#define PACEHOUND_SHIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "control.h"
#include "nccl_abi.h"
#include "ring.h"

#define PH_LIKELY(x) __builtin_expect(!!(x), 1)
#define PH_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* The profiler plugin and the hold of torch's hooks are libraries of their own, built of some of these files
 * (pacehound/instrument/profiler.py, pacehound/instrument/hold.py). */
#if defined PH_HOLD
#define PH_PART "hold"
#define PH_TITLE "hold"
#define PH_RING_MARK "h"
#elif defined PH_PROFILER
#define PH_PART "profiler"
#define PH_TITLE "NCCL profiler plugin"
#define PH_RING_MARK "p"
#else
#define PH_PART "shim"
#define PH_TITLE "NCCL shim"
#define PH_RING_MARK "s"
#endif

/* --- shim_process.c: one per process ------------------------------------------------------------------------ */

struct ph_process {
    _Atomic bool is_on; /* false until the first communicator, after a fork, and after an error of ours */
    bool is_broken;
    char run_dir[3072], job[256];
    int32_t rank, local_rank, world_size, attempt; /* -1: not said */
    uint32_t pid;
    uint64_t start_ticks;
    bool has_hooks; /* the hooks of torch's process groups write here too: they name the world */
    struct ph_control *_Atomic control; /* never NULL: a block of our own where there is no file */
};
extern struct ph_process ph_process;

/* Reads the environment and makes the control block, once per process (again after a fork); whether records are to
 * be written at all. Any thread. */
bool ph_process_start(void);
/* Switches the shim off for the life of this process and leaves the reason beside the rings. Can't fail. */
void ph_process_fail(const char *what, int error);
#ifdef PH_PROFILER
void ph_frames_stop(void); /* profiler_frame.c: counts are kept no longer */
#endif
/* Leaves a sentence in `<run folder>/notes/<pid>-<part>.json`, the first few of a process. Can't fail. */
void ph_process_note(const char *what, int error);
uint64_t ph_now_ns(void);

/* --- shim_real.c: the functions behind ours ------------------------------------------------------------------ */

/* The real function of this name, for the code at `caller`; NULL where there is none. Any thread. */
void *ph_real_find(const char *name, void *caller);
/* The same, remembered in `found` and said on stderr where there is none. */
void *ph_real_first(_Atomic(void *) *found, const char *name, void *caller);
/* A function of the CUDA driver, where one is loaded; NULL otherwise. */
void *ph_cuda_find(const char *name);
/* Whether what is launched on `stream` goes into a graph: 1, 0, or -1 where the driver does not say. */
int ph_capture_status(cudaStream_t stream);
/* Looks the driver up; cheap once it was found. */
void ph_cuda_start(void);

/* --- shim_ring.c: the ring and the open group of one thread --------------------------------------------------- */

struct ph_comm;

/* A call inside a group: it is launched at the end of the group. */
struct ph_waiting {
    struct ph_record record;
    struct ph_comm *comm;
};

/* A communicator that is being made: its handle is not there before a group ends or a state changes. */
struct ph_birth {
    ncclComm_t *where, parent; /* parent: whose state tells that it is made; NULL where there is none */
    uint8_t handle[16];
    int32_t size, rank; /* -1: to be asked */
    int64_t world_rank; /* -1: not known */
    char name[68];
};

enum { PH_MAX_WAITING = 1 << 16, PH_MAX_BIRTHS = 256 };

/* Every so manieth record's call is measured; what took longer than a core can be ours is not counted. */
enum { PH_MEASURED_EVERY = 256, PH_MEASURED_MOST_NS = 50000 };

struct ph_thread {
    uint32_t fork_generation, capacity;
    struct ph_ring_header *header; /* NULL: no ring yet */
    struct ph_record *records;
    uint64_t next;
    bool is_inside; /* in the real library: what it calls of us is its own business */
    const struct ph_comm *current; /* all that it launches now is of this one; NULL: it may be of several, or nothing */
    int32_t depth;  /* of nested groups */
    uint64_t group;
    uint32_t n_waiting, n_births;
    struct ph_waiting *waiting; /* PH_MAX_WAITING of address space; pages come with use */
    struct ph_birth *births;
};

/* The calling thread's state, made at its first call; NULL where there is no memory for one. */
struct ph_thread *ph_thread(void);
/* Opens the ring if need be; false (and the shim is off) where that fails. */
bool ph_ring_ready(struct ph_thread *self);
/* Two steps around filling in what follows the stamp. Can't fail; only after ph_ring_ready. */
struct ph_record *ph_ring_begin(struct ph_thread *self);
void ph_ring_commit(struct ph_thread *self, struct ph_record *record);
/* What the shim took of a call, measured: added up for the agent. Time in which the thread lost its core, or was held,
 * is not ours and is left out. Can't fail; only after ph_ring_ready. */
void ph_ring_measured(struct ph_thread *self, uint64_t took_ns);
/* A copy of `record`; can't fail, but switches the shim off where there is no ring. */
void ph_ring_write(struct ph_thread *self, const struct ph_record *record);
/* Says in all rings that nothing of this process is seen from here on. */
void ph_rings_switch_off(void);

/* In a forked child: the parent's rings are not its own. */
void ph_ring_forget(void);

/* --- shim_comms.c: communicators ------------------------------------------------------------------------------ */

enum ph_child { PH_SPLIT = 0, PH_SHRINK = 1 };

struct ph_comm {
    _Atomic(ncclComm_t) key; /* NULL: gone */
    uint8_t handle[16];
    int32_t rank, size; /* within the communicator */
    uint32_t world_rank;
    bool is_full; /* all ranks of the job are in it, and it is the first such one alive */
    _Atomic int64_t collectives;
    _Atomic int64_t *pairs; /* 2 * peer + (direction - 1); room for n_pairs */
    int32_t n_pairs;
    _Atomic uint32_t children[2];
    void *context; /* CUDA's, current when it was made */
    struct ph_comm *next_free;
};

/* The communicator behind a handle of NCCL's; NULL where its making was not seen. No lock. */
struct ph_comm *ph_comm_find(ncclComm_t key);
/* It is there now: remember it and write who is in it. Any thread; `rank` and `size` as in struct ph_birth. */
void ph_comm_born(const struct ph_birth *birth, ncclComm_t key);
/* It is about to go: write that and forget it. Memory is kept for the next one: a thread that still uses the handle
 * breaks NCCL's rules and must not break us. */
void ph_comm_gone(ncclComm_t key);
/* The world communicator; NULL where there is none. */
struct ph_comm *ph_comm_world(void);
/* The contexts of all communicators; at most `room`, returns how many. -1: this process has no device. */
int ph_comm_contexts(void **contexts, int room);
void ph_comm_forget(void); /* in a forked child */

/* Ids that all members compute alike. */
void ph_id_of_init(uint8_t id[16], const ncclUniqueId *unique);
void ph_id_of_all(uint8_t id[16], uint32_t ordinal);
void ph_id_of_child(uint8_t id[16], struct ph_comm *parent, enum ph_child kind, const int32_t *what, int n);

/* nccl_shim.c: another one in this process (the profiler plugin) tells of all calls, and we of none. */
extern _Atomic bool ph_shim_is_silent;

/* nccl_shim_comms.c: the outermost group has ended so; what was made in it is there, will be, or never. */
void ph_births_of_group(struct ph_thread *self, ncclResult_t result);

/* Communicators made without blocking: they are there when a state says so. */
void ph_births_later(const struct ph_birth *birth); /* one that has a parent */
extern _Atomic uint32_t ph_n_births_later;
/* `key` is ready: what was made of it is there. */
void ph_births_ready(ncclComm_t key);

/* --- shim_trap.c ---------------------------------------------------------------------------------------------- */

extern _Atomic uint64_t ph_trap_answered; /* the trap that is over for this process; others have to be looked at */
/* A call or a group begins: stop here if the trap says so. Returns when the hold is over. */
void ph_trap_look(void);
/* A communicator is aborted: whatever waits here goes on. */
void ph_trap_abandon(void);
void ph_trap_forget(void);

static inline void ph_trap_check(void) {
    struct ph_control *control = atomic_load_explicit(&ph_process.control, memory_order_relaxed);
    if (PH_UNLIKELY(atomic_load_explicit(&control->trap_id, memory_order_relaxed) !=
                    atomic_load_explicit(&ph_trap_answered, memory_order_relaxed)))
        ph_trap_look();
}

/* --- shim_timing.c -------------------------------------------------------------------------------------------- */

struct ph_timed; /* a call, or a group of calls on one stream, between its two events */

extern _Atomic uint64_t ph_timing_seen;           /* the request that was looked at last */
extern _Atomic uint32_t ph_timing_every;          /* 0: nothing is timed now */
extern _Atomic uint32_t ph_timing_rounds;
/* The controller asks for something else: starts the collecting thread if need be. Waits for nobody. */
void ph_timing_look(void);
/* Records the first event of a call on `stream`, of this ph_capture_status; `now_ns` has just been read. NULL: the call
 * is not timed (counted). No allocation, no lock. */
struct ph_timed *ph_timing_begin(void *context, cudaStream_t stream, int capture, uint64_t now_ns);
/* The same for the thread's open group, whose calls must be few, on one stream and of one context; NULL without a word
 * where it is not their turn. */
struct ph_timed *ph_timing_begin_group(const struct ph_thread *self, uint64_t now_ns);
/* The record that is in the ring as launched; its end will follow. */
void ph_timing_launched(struct ph_timed *timed, const struct ph_record *record);
/* The real call has come back: records the second event, or gives up if nothing is known to be on the stream. */
void ph_timing_end(struct ph_timed *timed, ncclResult_t result);
/* A communicator is aborted: what is on its way ends when nobody can say. */
void ph_timing_abandon(void);
void ph_timing_forget(void); /* in a forked child */

static inline void ph_timing_check(void) {
    struct ph_control *control = atomic_load_explicit(&ph_process.control, memory_order_relaxed);
    if (PH_UNLIKELY(atomic_load_explicit(&control->timing_id, memory_order_relaxed) !=
                    atomic_load_explicit(&ph_timing_seen, memory_order_relaxed)))
        ph_timing_look();
}

/* Whether it is the turn of the call with this number. */
static inline bool ph_timing_wants(int64_t seq) {
    uint32_t every = atomic_load_explicit(&ph_timing_every, memory_order_relaxed);
    return PH_UNLIKELY(every) &&
           (uint64_t)seq / atomic_load_explicit(&ph_timing_rounds, memory_order_relaxed) % every == 0;
}

#endif
