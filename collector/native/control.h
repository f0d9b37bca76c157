/* control.h: the control block through which a controller on the same host asks one process to stop for a while.
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
 */
#ifndef PACEHOUND_CONTROL_H
#define PACEHOUND_CONTROL_H

#include <stdatomic.h>
#include <stdint.h>

#define PH_CONTROL_MAGIC 0x314c544348434150ull /* "PACHCTL1" as little-endian bytes */
#define PH_CONTROL_VERSION 1u
#define PH_CONTROL_BYTES 4096u

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
    uint8_t padding3[PH_CONTROL_BYTES - 292];
};

_Static_assert(sizeof(struct ph_control) == PH_CONTROL_BYTES, "a control block is 4,096 bytes");

#endif
