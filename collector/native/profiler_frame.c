/* The probing frames of this process's ranks (frame.h): made with a rank's first communicator, kept until the end.
 *
 * What happens per event is a few relaxed stores into a block that the caller owns: no lock, no memory, no waiting. A
 * block is taken by compare-and-swap, which fails only where another communicator has just taken one.
 */
#define _GNU_SOURCE
#include "profiler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FRAMES = 64, ALL_BLOCKS = (1 << PH_FRAME_BLOCKS) - 1 };

static struct ph_frame *_Atomic frames[MAX_FRAMES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of who makes one */
static bool has_failed;

void ph_frames_forget(void) {
    pthread_mutex_init(&lock, NULL);
    has_failed = false;
    for (int i = 0; i < MAX_FRAMES; i++) atomic_store(&frames[i], NULL); /* they stay mapped, and are the parent's */
}

void ph_frames_stop(void) {
    for (int i = 0; i < MAX_FRAMES; i++) {
        struct ph_frame *frame = atomic_load(&frames[i]);
        if (frame) atomic_store(&frame->header.mode, 0);
    }
}

static void clear(struct ph_frame_block *block) {
    for (unsigned i = 0; i < PH_FRAME_CHANNELS; i++) {
        atomic_store_explicit(&block->channels[i].sent, PH_FRAME_UNTOLD, memory_order_relaxed);
        atomic_store_explicit(&block->channels[i].received, PH_FRAME_UNTOLD, memory_order_relaxed);
    }
}

/* A new file, mapped; NULL, and why, where that fails. */
static struct ph_frame *make(int32_t rank, int *why) {
    char path[sizeof ph_process.run_dir + 96], scratch[sizeof path + 8];
    snprintf(path, sizeof path, "%s/frames", ph_process.run_dir);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/frames/%u-%llu-%d.frame", ph_process.run_dir, ph_process.pid,
             (unsigned long long)ph_process.start_ticks, rank);
    snprintf(scratch, sizeof scratch, "%s.new", path);
    int fd = open(scratch, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, sizeof(struct ph_frame));
    void *memory = error ? MAP_FAILED : mmap(NULL, sizeof(struct ph_frame), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && memory == MAP_FAILED) error = errno;
    if (fd >= 0) close(fd);
    if (!error) {
        struct ph_frame *frame = memory;
        frame->header.magic = PH_FRAME_MAGIC;
        frame->header.version = PH_FRAME_VERSION;
        frame->header.rank = rank;
        atomic_store(&frame->header.mode, 1);
        for (unsigned i = 0; i < PH_FRAME_BLOCKS; i++) clear(&frame->blocks[i]);
        if (rename(scratch, path) == 0) return frame;
        error = errno;
        munmap(memory, sizeof(struct ph_frame));
    }
    if (fd >= 0) unlink(scratch);
    *why = error;
    return NULL;
}

struct ph_frame *ph_frame_of(int32_t rank) {
    struct ph_frame *frame = NULL;
    int at = 0, error = 0;
    pthread_mutex_lock(&lock);
    while (at < MAX_FRAMES && (frame = atomic_load(&frames[at])) && frame->header.rank != rank) at++;
    if (at == MAX_FRAMES) frame = NULL;
    if (!frame && !has_failed) {
        if (at < MAX_FRAMES) frame = make(rank, &error);
        if (frame) atomic_store(&frames[at], frame);
        else ph_process_note("no probing frame: how far a call has come is not seen while it runs", error);
        has_failed = !frame; /* said once: a disk that is full now need not be asked again */
    }
    pthread_mutex_unlock(&lock);
    return frame;
}

/* The first block from `first` on whose operation is over, now ours; -1 where there is none. */
static int take_block(struct ph_frame_header *header, unsigned first) {
    uint8_t running = atomic_load_explicit(&header->running, memory_order_relaxed);
    while (running != ALL_BLOCKS) {
        unsigned at = first % PH_FRAME_BLOCKS;
        while (running >> at & 1) at = (at + 1) % PH_FRAME_BLOCKS;
        if (atomic_compare_exchange_weak_explicit(&header->running, &running, (uint8_t)(running | 1u << at),
                                                  memory_order_acquire, memory_order_relaxed))
            return (int)at;
    }
    return -1;
}

void ph_frame_begin(struct ph_frame *frame, struct ph_call *call) {
    const struct ph_record *record = &call->record;
    uint64_t communicator, operation = (uint64_t)record->call.seq & ((1ull << PH_FRAME_SEQ_BITS) - 1);
    if (!frame || call->block != PH_BLOCK_NOT_ASKED) return;
    uint64_t counter = atomic_fetch_add_explicit(&frame->header.counter, 1, memory_order_relaxed);
    int at = take_block(&frame->header, (unsigned)(counter % PH_FRAME_BLOCKS));
    if (at < 0) {
        call->block = PH_BLOCK_NONE;
        atomic_fetch_add_explicit(&frame->header.unkept, 1, memory_order_relaxed);
        return;
    }
    memcpy(&communicator, record->handle, sizeof communicator);
    if (record->call.direction != PH_NONE)
        operation |= (uint64_t)(uint32_t)record->call.peer << PH_FRAME_SEQ_BITS |
                     (uint64_t)record->call.direction << (PH_FRAME_SEQ_BITS + PH_FRAME_PEER_BITS);
    struct ph_frame_block *block = &frame->blocks[at];
    call->block = (int8_t)at;
    atomic_store_explicit(&block->trace.communicator, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    clear(block);
    atomic_store_explicit(&block->trace.operation, operation, memory_order_relaxed);
    atomic_store_explicit(&block->trace.communicator, communicator, memory_order_release);
    atomic_store_explicit(&frame->header.kernel_index, (uint8_t)at, memory_order_relaxed);
}

void ph_frame_count(struct ph_frame *frame, const struct ph_call *call, const struct ph_op *op, int announced, int done) {
    if (!frame || call->block < 0) return;
    _Atomic uint16_t *channels = &frame->header.n_channels;
    uint16_t known = atomic_load_explicit(channels, memory_order_relaxed), needed = op->channel + 1u;
    while (known < needed && !atomic_compare_exchange_weak_explicit(channels, &known, needed, memory_order_relaxed,
                                                                    memory_order_relaxed)) {}
    struct ph_frame_counts *counts = &frame->blocks[call->block].channels[op->channel % PH_FRAME_CHANNELS];
    _Atomic uint64_t *count = op->is_send ? &counts->sent : &counts->received;
    uint64_t before = atomic_load_explicit(count, memory_order_relaxed);
    uint64_t more = (uint64_t)(announced > 0 ? announced : 0) << 32 | (uint32_t)(done > 0 ? done : 0);
    atomic_store_explicit(count, (before == PH_FRAME_UNTOLD ? 0 : before) + more, memory_order_relaxed);
}

void ph_frame_end(struct ph_frame *frame, struct ph_call *call) {
    if (frame && call->block >= 0)
        atomic_fetch_and_explicit(&frame->header.running, (uint8_t)~(1u << call->block), memory_order_release);
    call->block = PH_BLOCK_NONE;
}
