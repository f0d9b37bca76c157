/* control.h: the control block through which a controller on the same host asks one process to stop for a while, or to
 * time its calls on the device for a while.
 *
 * One file per process that has a communicator, `<run folder>/control/<pid>.control`, made and mapped by the shim.
 * The process believes nothing that it reads there: every field may be garbage, and the worst that follows is a hold
 * that ends by itself (shim_trap.c says when). Times are CLOCK_MONOTONIC nanoseconds. All integers are little-endian.
 *
 * The trap (Falcon 4.3). The controller reads `world_launched` of all ranks, chooses a round N that lies at least one
 * iteration ahead of every one of them, fills in its fields, and stores `trap_id` last (release); it renews
 * `heartbeat_ns` while it lives. Each process that sees the id while its own counter is still below N answers
 * PH_TRAP_ARMED and stops at its first call after round N: PH_TRAP_HELD, then `drained_ns` once its device has done
 * all it was given. Only when all are held and drained may the controller set PH_VALIDATING. It ends the hold with
 * PH_RELEASE. One process that answers PH_TRAP_REFUSED is the end of the attempt: release all.
 *
 * Timing (Falcon 4.3, the profiling phase; shim_timing.c). The controller fills in `timing_until_ns` and what follows,
 * and stores `timing_id` last (release). A call with sequence number s is timed where s / timing_rounds is a multiple
 * of timing_every: all ranks choose the same rounds without a word. It ends when timing_id changes, at timing_until_ns,
 * PH_TIMING_MOST_NS after it was seen, or when it costs too much; the answer says why.
 */
#ifndef PACEHOUND_CONTROL_H
#define PACEHOUND_CONTROL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PH_CONTROL_MAGIC 0x314c544348434150ull /* "PACHCTL1" as little-endian bytes */
#define PH_CONTROL_VERSION 2u /* 2: timing */
#define PH_CONTROL_BYTES 4096u
#define PH_TIMING_MOST_NS 600000000000u

enum ph_trap_command { PH_RELEASE = 0, PH_GATHERING = 1, PH_VALIDATING = 2 };

enum ph_trap_phase { PH_TRAP_NONE = 0, PH_TRAP_ARMED = 1, PH_TRAP_HELD = 2, PH_TRAP_RELEASED = 3, PH_TRAP_REFUSED = 4 };

enum ph_trap_why {
    PH_WHY_NONE = 0,
    PH_WHY_COMMAND = 1,   /* the controller said so, or went on to another trap */
    PH_WHY_DEAD = 2,      /* its heartbeat has stopped, or never was one */
    PH_WHY_LATE = 3,      /* not all had come in time */
    PH_WHY_LIMIT = 4,     /* as long as a hold may last */
    PH_WHY_PASSED = 5,    /* refused: round N was launched before the trap was seen */
    PH_WHY_NO_WORLD = 6,  /* refused: there is no communicator of all ranks */
    PH_WHY_NO_LIMIT = 7,  /* refused: hold_ms or timeout_ms is 0 */
    PH_WHY_ABORT = 8,     /* a communicator of this process was aborted */
};

enum ph_timing_phase { PH_TIMING_OFF = 0, PH_TIMING_STARTING = 1, PH_TIMING_ON = 2, PH_TIMING_OVER = 3 };

enum ph_timing_why {
    PH_TIMING_WHY_NONE = 0,
    PH_TIMING_WHY_COMMAND = 1, /* the controller said so, or went on to another request */
    PH_TIMING_WHY_TIME = 2,    /* as long as was asked for, or as may be */
    PH_TIMING_WHY_COST = 3,    /* event calls took more than PH_TIMING_COST_LIMIT times the cap */
    PH_TIMING_WHY_NO_CUDA = 4, /* no driver is loaded, or it lacks a function */
    PH_TIMING_WHY_CUDA = 5,    /* CUDA gave an error: never again in this process */
    PH_TIMING_WHY_MEMORY = 6,  /* no memory or no thread */
};
#define PH_TIMING_COST_LIMIT 10u

struct ph_control {
    uint64_t magic;
    uint32_t version, pid;
    uint64_t process_start_ticks;
    int32_t rank;
    uint32_t reserved;
    uint8_t padding[32];
    /* offset 64: the process writes, once per round */
    _Atomic uint64_t world_launched; /* collectives launched on the communicator of all ranks */
    _Atomic uint64_t unnamed;        /* calls on communicators whose making was not seen: they are in no ring */
    uint8_t padding1[48];
    /* offset 128: the process answers */
    _Atomic uint64_t answers_id; /* which trap the answer below is about */
    _Atomic uint32_t phase, why;
    _Atomic uint64_t arrived_ns, drained_ns, released_ns;
    uint8_t padding2[88];
    /* offset 256: the controller writes */
    _Atomic uint64_t trap_id; /* 0: none */
    _Atomic uint64_t round;   /* stop after the collective of this sequence number on the world communicator */
    _Atomic uint64_t heartbeat_ns;
    _Atomic uint32_t command;
    _Atomic uint32_t hold_ms;    /* at most this long */
    _Atomic uint32_t timeout_ms; /* the smallest process-group or heartbeat timeout of the job */
    _Atomic uint32_t timing_cap_ppm; /* of a thread's time that its event calls may take; above it fewer are timed */
    _Atomic uint64_t timing_id;      /* 0: nothing is timed */
    _Atomic uint64_t timing_until_ns;
    _Atomic uint32_t timing_rounds, timing_every; /* so many rounds in a row of every so many such stretches */
    uint8_t padding3[64];
    /* offset 384: the process answers */
    _Atomic uint64_t timing_answers_id;
    _Atomic uint32_t timing_phase, timing_why;
    _Atomic uint32_t timing_every_now; /* more than was asked for where that cost too much */
    _Atomic uint32_t timing_reserved;
    _Atomic uint64_t timed, untimed; /* calls since the process began; untimed: their turn, and could not be */
    _Atomic uint64_t event_ns;       /* that event calls have taken of the calling threads */
    uint8_t padding4[PH_CONTROL_BYTES - 432];
};

_Static_assert(sizeof(struct ph_control) == PH_CONTROL_BYTES, "a control block is 4,096 bytes");
_Static_assert(offsetof(struct ph_control, trap_id) == 256, "what a call looks at is one cache line");
_Static_assert(offsetof(struct ph_control, timing_id) == 296, "and this is in it");
_Static_assert(offsetof(struct ph_control, timing_answers_id) == 384, "the answer is in another");

#endif
