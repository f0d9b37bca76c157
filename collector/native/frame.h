/* frame.h: CCL-D's probing frame (section 5.1, figure 9): how far the operations that a rank runs right now have come.
 *
 * One file per rank, `<run folder>/frames/<pid>-<process start ticks>-<rank>.frame`, 1,184 bytes (section 6.3.1): a header
 * of 32 and 8 blocks of 144, each for one operation on 8 channels. A ring (ring.h) tells of an operation when it begins
 * and when it is over; the frame tells of it in between, and after its process has hung or died.
 *
 * The profiler plugin writes it (profiler_frame.c), for it alone is told of network transfers; the shim makes none. A
 * block has one writer at a time: who sets its bit in `running`, until the bit is cleared. Nobody waits for a reader, and
 * the plugin believes nothing that stands here: garbage costs right counts and no more. All integers are little-endian.
 *
 * The paper keeps operation `counter` in block `counter % 8`, whatever ran there. Here the search for a block begins at
 * that place and takes the first whose operation is over: on a rank with many communicators the one that hangs would be
 * overwritten by eight others that do not. With eight running, the newest has no block, and `unkept` counts it.
 *
 * Taking a block:
 *   1. its bit in `running` := 1             (acquire)
 *   2. trace.communicator := 0               (then a release fence)
 *   3. all counts := PH_FRAME_UNTOLD, trace.operation
 *   4. trace.communicator := the operation's (release)
 * Reading: copy the frame twice; the counts of the first copy are those of the trace id that both have.
 */
#ifndef PACEHOUND_FRAME_H
#define PACEHOUND_FRAME_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PH_FRAME_MAGIC 0x314d524648434150ull /* "PACHFRM1" as little-endian bytes */
#define PH_FRAME_VERSION 1u
#define PH_FRAME_BLOCKS 8u
#define PH_FRAME_CHANNELS 8u
#define PH_FRAME_UNTOLD UINT64_MAX /* no transfer of this operation, channel and direction was announced */

/* trace.operation: the number in the low 40 bits, the peer (rank within the communicator) in the next 20, then an enum
 * ph_direction; collectives have neither peer nor direction. */
#define PH_FRAME_SEQ_BITS 40
#define PH_FRAME_PEER_BITS 20

struct ph_frame_header {
    /* set before the file gets its name */
    uint64_t magic;
    uint16_t version;
    /* "number of communication channels": the highest channel with transfers so far, plus one. Above 8, a slot holds the
     * sum of the channels that are equal modulo 8. */
    _Atomic uint16_t n_channels;
    int32_t rank;                 /* world rank */
    _Atomic uint64_t counter;     /* "operation counter": operations that have begun to run, of all communicators */
    _Atomic uint32_t unkept;      /* those of them that found all blocks taken */
    _Atomic uint8_t kernel_index; /* "kernelIndex": the block that was taken last */
    _Atomic uint8_t running;      /* a bit per block: its operation has not ended */
    _Atomic uint8_t mode;         /* "mode flag": 1 counts are kept, 0 no longer (the plugin has switched itself off) */
    uint8_t reserved;
};

/* Trace ID (section 5.1): communicator, operation counter, extension. Of a collective these 16 bytes are the OpenTelemetry
 * trace id of its round (pacehound/model/identity.py). Of a send or a receive they are not: the extension is how this
 * side sees the pair, and the trace id, which both sides share, has their world ranks, which a plugin does not know. */
struct ph_frame_trace {
    _Atomic uint64_t communicator; /* the first 8 bytes of its id; 0: the block is being filled, or never was */
    _Atomic uint64_t operation;
};

/* SendCount and RecvCount (4.1.2) in network transfers ("steps" of NCCL's proxy). The paper counts primitives inside the
 * kernel, which needs a changed NCCL. The low 32 bits are the transfers that are done, the high ones those that were
 * announced: a channel that has finished can be told from one that has stopped, whatever the others have to do. */
struct ph_frame_counts {
    _Atomic uint64_t sent, received;
};

struct ph_frame_block {
    struct ph_frame_trace trace;
    struct ph_frame_counts channels[PH_FRAME_CHANNELS];
};

struct ph_frame {
    struct ph_frame_header header;
    struct ph_frame_block blocks[PH_FRAME_BLOCKS];
};

_Static_assert(sizeof(struct ph_frame_header) == 32, "the paper's header has 32 bytes");
_Static_assert(sizeof(struct ph_frame_trace) == 16, "the paper's Trace ID has 16 bytes");
_Static_assert(sizeof(struct ph_frame_block) == 144, "the paper's block has 144 bytes");
_Static_assert(sizeof(struct ph_frame) == 1184, "the paper's frame has 1,184 bytes");
_Static_assert(offsetof(struct ph_frame_header, counter) == 16, "the counter stands at 16");
_Static_assert(offsetof(struct ph_frame_header, running) == 29, "the bits of running operations stand at 29");

#endif
