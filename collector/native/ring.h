/* ring.h: the ring that carries one thread's records to the agent.
 *
 * One file per thread that writes, `<run folder>/rings/<pid>-<tid>-<time>.ring`, mapped by the writer and read by the
 * agent; the time, in ns, tells it from those of a process that has begun anew in the same place (execve). When the
 * thread ends, the next one that has something to say writes on in it.
 * Single producer, single consumer, no locks, no system calls after creation. A full ring overwrites its oldest
 * records: the writer never waits, and the reader counts what it missed from the sequence stamps. The file stays
 * readable after the writer has died, at any instruction. The agent removes it when it has read it to its end after its
 * writer has closed it, or after the process has left. How large it is depends on the room (ring_room.h).
 *
 * The layout is shared by pacehound/instrument/ring.py (Python writer), pacehound/instrument/native/own_rings.h
 * (C++ writer), collector/native/shim_ring.c (the NCCL shim) and collector/calls/rings.py (reader). The shim's files
 * are `<pid>-<tid>-s<time>.ring`, those of the NCCL profiler plugin `<pid>-<tid>-p<time>.ring`, for all may be in one
 * process. All integers are little-endian.
 * Times are CLOCK_MONOTONIC nanoseconds; the agent maps them to Unix time by one clock pair per host and job.
 *
 * Writing record i (i counts from 0, slot = i % capacity):
 *   1. stamp := 2*i + 1          (release: the record is being written)
 *   2. the other 120 bytes
 *   3. stamp := 2*i + 2          (release: record i is complete)
 *   4. header.written := i + 1   (release)
 * Reading record i: load stamp, copy the record, load stamp again. It is valid only if both are 2*i + 2; a larger
 * stamp means that record i was overwritten (lost, count it), a smaller one that it is not complete yet.
 */
#ifndef PACEHOUND_RING_H
#define PACEHOUND_RING_H

#include <stdint.h>

#define PH_RING_MAGIC 0x31474e5248434150ull /* "PACHRNG1" as little-endian bytes */
#define PH_RING_VERSION 2u /* 2: PH_PLACE and PH_LOCAL_PEER; a reader of 1 would take a peer for a world rank */
#define PH_RING_HEADER_BYTES 4096u
#define PH_RECORD_BYTES 128u
#define PH_TEXT_BYTES 96u

/* The first 4,096 bytes. What stands before `written` is set before the file gets its final name. */
struct ph_ring_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint32_t record_bytes;
    uint32_t capacity; /* records; a power of two */
    uint32_t pid;
    uint32_t tid;
    uint64_t process_start_ticks; /* field 22 of /proc/<pid>/stat: tells a reused pid */
    int32_t rank;                 /* world rank from the environment; -1 until a GROUP record says */
    int32_t local_rank;
    int32_t world_size;
    int32_t attempt; /* runs of this job before this one (PACEHOUND_ATTEMPT) + elastic restarts (TORCHELASTIC_RESTART_COUNT) */
    uint64_t created_ns;
    uint8_t reserved[64]; /* zero */
    /* offset 128: a cache line that only the writer changes */
    volatile uint64_t written; /* records completed so far */
    volatile uint32_t closed;  /* PH_RING_CLOSED: nobody writes it any more; PH_RING_OFF: an error of ours has switched
                                  the writers of this process off, so that its calls go unseen from here on */
    uint32_t reserved2;
    volatile uint64_t measured_calls; /* of the NCCL shim: calls whose own time was measured (0 in other writers' rings), */
    volatile uint64_t measured_ns;    /* and what we took of the calling thread in them */
    uint8_t padding[PH_RING_HEADER_BYTES - 160];
};

enum ph_ring_closed { PH_RING_CLOSED = 1, PH_RING_OFF = 2 };

enum ph_record_kind {
    PH_GROUP = 1,    /* a communicator this process joined; its members follow in PH_MEMBERS records */
    PH_MEMBERS = 2,  /* up to 23 world ranks of the group before it */
    PH_LAUNCH = 3,   /* a call begins on the host (launch_ns) */
    PH_COMPLETE = 4, /* a call has ended (end_ns, and start_ns where the source sees it); joined by
                        (communicator, seq, peer, direction) with its PH_LAUNCH, maybe from another thread's ring */
    PH_MARKER = 5,   /* optimizer step, checkpoint, evaluation */
    PH_EXIT = 6,     /* the process is about to leave: text says why ("" in good order, else the exception) */
    PH_DESTROY = 7,  /* a communicator is gone; calls still open on it are given up */
    PH_PLACE = 8,    /* after a PH_GROUP in place of PH_MEMBERS, by a source that is told nobody's place but its own:
                        the members are known when all of them have said theirs, maybe on other hosts */
    PH_OPERATION = 9, /* an operation of a training step that was recorded for what-if; the handle is zero */
    PH_EDGE = 10,     /* over which edge a call of the profiler plugin has sent or received, once when it is new */
};

enum ph_call_flags {
    PH_CAPTURED = 1,  /* recorded into a CUDA graph, not executed */
    PH_FAILED = 2,    /* completed with an error */
    PH_ASYNC = 4,     /* the caller did not wait in the call itself */
    PH_END_BOUND = 8, /* end_ns is an upper bound (seen only when the caller waited) */
    PH_LOCAL_PEER = 16, /* peer is a rank within the communicator, not a world rank */
    PH_TIMED = 32,      /* of a source that sees launches only: this call's start and end follow in a PH_COMPLETE; 0 in
                           it where they are not known after all */
};

enum ph_marker {
    PH_OPTIMIZER_STEP = 0,
    PH_CHECKPOINT_BEGIN = 1,
    PH_CHECKPOINT_END = 2,
    PH_EVALUATION_BEGIN = 3,
    PH_EVALUATION_END = 4,
    PH_HOLD_BEGIN = 5, /* 5 and 6 are the agent's own */
    PH_HOLD_END = 6,
};

enum ph_direction { PH_NONE = 0, PH_SEND = 1, PH_RECV = 2 };

/* 128 bytes. Codes of op, dtype and redop are positions in OPS, DTYPES and REDOPS of pacehound/model/calls.py.
 * The 96 bytes behind `handle` are one of the bodies below. */
struct ph_record {
    volatile uint64_t stamp;
    uint8_t kind; /* enum ph_record_kind */
    uint8_t reserved[3];
    uint32_t rank;        /* world rank of this process, when the record was written */
    uint8_t handle[16];   /* communicator id: the 16 bytes that pacehound/model/identity.py:communicator_id gives in hex */
    union {
        struct {          /* PH_LAUNCH, PH_COMPLETE */
            uint8_t op, dtype, redop, direction;
            uint8_t flags, source; /* position in SOURCES of pacehound/model/calls.py */
            uint16_t channels;
            int32_t peer;          /* world rank of the peer (p2p) or the root (rooted operations), else -1; PH_LOCAL_PEER */
            uint8_t algorithm, protocol; /* positions in ALGORITHMS and PROTOCOLS of pacehound/model/codes.py; profiler only */
            uint16_t reserved;
            int64_t seq;           /* per communicator; p2p: per (communicator, peer, direction) */
            int64_t count;         /* elements; -1 unknown */
            uint64_t launch_ns, start_ns, end_ns; /* 0: not known (yet) */
            uint64_t stream, group;
            int64_t send_count, recv_count; /* -1 unknown */
            float send_rate, recv_rate;     /* transfers per millisecond that saw any; only in a PH_COMPLETE of the
                                               profiler plugin, NaN unknown; others leave here what was there */
        } call;
        struct { /* PH_GROUP; PH_MEMBERS uses n_members (in this record) and members */
            uint64_t created_ns;
            int32_t generation, world_size, n_members;
            uint8_t is_world, backend; /* backend: 0 other, 1 gloo, 2 nccl, 3 mpi, 4 ucc */
            uint16_t reserved;
            uint32_t timeout_ms; /* 0 unknown */
            char name[68];       /* UTF-8, NUL-padded, cut where longer */
        } group;
        struct {
            int32_t n_members;
            int32_t members[23];
        } members;
        struct { /* PH_PLACE */
            int32_t n_members;
            int32_t index; /* this rank's rank within the communicator */
        } place;
        struct { /* PH_EDGE */
            int32_t index, peer; /* this rank's and the other's rank within the communicator */
            uint8_t algorithm;   /* position in ALGORITHMS of pacehound/model/codes.py */
            uint8_t channel;     /* modulo 8, as in a probing frame */
            uint8_t direction;   /* enum ph_direction */
        } edge;
        struct { /* PH_MARKER */
            uint64_t time_ns;
            int64_t step; /* iterations of this rank that have ended before this one, from 0 */
            uint32_t marker;
            uint32_t ordinal; /* 0; of other optimizers, whose steps end no iteration, writers of before said so */
        } marker;
        struct { /* PH_EXIT */
            uint64_t time_ns;
            uint32_t failed; /* 0 in good order */
            char text[84];
        } exit;
        struct { /* PH_OPERATION */
            uint64_t start_ns, end_ns;
            int64_t step;        /* optimizer steps of this rank before it */
            int32_t optype;      /* position in OPTYPES of pacehound/model/operations.py */
            int32_t stage;       /* of this rank in its pipeline */
            int32_t chunk;       /* model chunk: the stage as the whole model counts, virtual ones included */
            int32_t micro_batch; /* -1: of the whole step */
            int32_t pipeline;    /* the lowest world rank of its pipeline; its own where there is none */
            int32_t seq;         /* among the operations of its type in the step */
        } operation;
        uint8_t bytes[PH_TEXT_BYTES];
    };
};

#ifdef __cplusplus
#define PH_ASSERT(condition, text) static_assert(condition, text)
#else
#define PH_ASSERT(condition, text) _Static_assert(condition, text)
#endif
PH_ASSERT(sizeof(struct ph_ring_header) == PH_RING_HEADER_BYTES, "ring header is 4,096 bytes");
PH_ASSERT(sizeof(struct ph_record) == PH_RECORD_BYTES, "a record is 128 bytes");

#endif
