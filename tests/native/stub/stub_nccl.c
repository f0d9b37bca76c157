/* A stand-in for NCCL without a device: it blocks where NCCL blocks. Ranks are processes (or threads) on one host.
 *
 * A communicator is a file in $STUB_NCCL_DIR, mapped by its ranks. Making one waits for all ranks; a call returns when
 * it is queued on its stream, and is done when all ranks (a pair: the peer) have come to it. Calls of a group begin at
 * the end of the group. Nothing is moved: `count` and the buffers are looked at by nobody.
 */
#define _GNU_SOURCE
#include "stub_nccl.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "stub_device.h"

enum { MAX_RANKS = 32, MAX_SPLITS = 8, MAX_GROUP = 4096, MAX_MAKING = 64 };

struct shared {
    _Atomic uint32_t epoch, joined;
    struct {
        _Atomic uint32_t round; /* of splits and shrinks that this rank has come to */
        int color[MAX_SPLITS], key[MAX_SPLITS];
    } ranks[MAX_RANKS];
    _Atomic uint64_t collectives[MAX_RANKS], sent[MAX_RANKS][MAX_RANKS], received[MAX_RANKS][MAX_RANKS];
};

struct ncclComm {
    struct shared *shared;
    uint64_t id;
    int size, rank, is_blocking;
    uint32_t splits;
    uint64_t collectives, sent[MAX_RANKS], received[MAX_RANKS];
    _Atomic int is_aborted, outstanding;
    _Atomic ncclResult_t state;
};

/* One communicator that is being made: announced by all ranks first, then waited for. */
struct making {
    struct ncclComm *comm, *parent; /* parent: NULL for an initialisation */
    int color, key;
    ncclComm_t *where;
    uint32_t round;
};

static _Thread_local struct {
    int depth, n_calls, n_making;
    struct call {
        cudaStream_t stream;
        struct stub_part part;
    } *calls;
    struct making making[MAX_MAKING];
    ncclResult_t error;
} group;

static uint64_t mixed(uint64_t a, uint64_t b) {
    a = (a ^ b) * 0x9e3779b97f4a7c15u;
    return a ^ a >> 29;
}

/* Waiting: on a counter of the communicator's file, or until it is aborted. */

static void told(struct shared *shared) {
    atomic_fetch_add(&shared->epoch, 1);
    syscall(SYS_futex, &shared->epoch, FUTEX_WAKE, MAX_RANKS * 64, NULL, NULL, 0);
}

static void until(struct ncclComm *comm, int (*is_done)(struct ncclComm *, const void *), const void *what) {
    const struct timespec look_again = {0, 100000000};
    for (;;) {
        uint32_t epoch = atomic_load(&comm->shared->epoch);
        if (is_done(comm, what) || atomic_load(&comm->is_aborted)) return;
        syscall(SYS_futex, &comm->shared->epoch, FUTEX_WAIT, epoch, &look_again, NULL, 0);
    }
}

static int is_joined(struct ncclComm *comm, const void *what) {
    (void)what;
    return atomic_load(&comm->shared->joined) >= (uint32_t)comm->size;
}

static int has_come(struct ncclComm *comm, const void *what) {
    uint32_t round = *(const uint32_t *)what;
    for (int r = 0; r < comm->size; r++)
        if (atomic_load(&comm->shared->ranks[r].round) < round) return 0;
    return 1;
}

static int is_part_done(struct ncclComm *comm, const void *what) {
    const struct stub_part *part = what;
    if (part->peer >= 0) {
        _Atomic uint64_t *theirs = part->is_send ? &comm->shared->received[part->peer][comm->rank]
                                                 : &comm->shared->sent[part->peer][comm->rank];
        return atomic_load(theirs) > part->number;
    }
    for (int r = 0; r < comm->size; r++)
        if (atomic_load(&comm->shared->collectives[r]) <= part->number) return 0;
    return 1;
}

/* On the stream's thread. */
void stub_run(struct stub_work *work) {
    for (int i = 0; i < work->n_parts; i++) {
        struct stub_part *part = &work->parts[i];
        struct shared *shared = part->comm->shared;
        _Atomic uint64_t *mine = part->peer < 0   ? &shared->collectives[part->comm->rank]
                                 : part->is_send ? &shared->sent[part->comm->rank][part->peer]
                                                 : &shared->received[part->comm->rank][part->peer];
        uint64_t known = atomic_load(mine); /* never back: streams of one communicator may overtake each other */
        while (known < part->number + 1 && !atomic_compare_exchange_weak(mine, &known, part->number + 1)) continue;
        told(shared);
    }
    for (int i = 0; i < work->n_parts; i++) {
        until(work->parts[i].comm, is_part_done, &work->parts[i]);
        atomic_fetch_sub(&work->parts[i].comm->outstanding, 1);
    }
}

/* Calls. */

/* A profiler plugin, as NCCL tells it: each call on the thread that launches it. */
void (*stub_tells_plugin)(int size, int rank, int peer, int is_send);

ncclResult_t ncclGetVersion(int *version) {
    *version = getenv("STUB_NCCL_VERSION") ? atoi(getenv("STUB_NCCL_VERSION")) : 0;
    return ncclSuccess;
}

static void launch(struct call *calls, int n) {
    for (int i = 0; i < n && stub_tells_plugin; i++)
        stub_tells_plugin(calls[i].part.comm->size, calls[i].part.comm->rank, calls[i].part.peer, calls[i].part.is_send);
    for (int i = 0; i < n; i++) {
        if (!calls[i].part.comm) continue;
        int same = 0;
        for (int j = i; j < n; j++) same += calls[j].part.comm && calls[j].stream == calls[i].stream;
        struct stub_work *work = calloc(1, sizeof *work + (size_t)same * sizeof work->parts[0]);
        cudaStream_t stream = calls[i].stream;
        const char *kernel_us = getenv("STUB_CALL_US");
        if (kernel_us) work->kernel_us = atol(kernel_us);
        for (int j = i; j < n; j++) {
            if (!calls[j].part.comm || calls[j].stream != stream) continue;
            atomic_fetch_add(&calls[j].part.comm->outstanding, 1);
            work->parts[work->n_parts++] = calls[j].part;
            calls[j].part.comm = NULL;
        }
        stub_enqueue(stream, work);
    }
}

static ncclResult_t call(struct ncclComm *comm, ncclDataType_t type, int peer, int is_pair, int is_send,
                         cudaStream_t stream) {
    if (!comm || type < 0 || type >= NCCL_DATA_TYPES || (peer >= 0 && peer >= comm->size) || peer < -1) {
        group.error = ncclInvalidArgument;
        return ncclInvalidArgument;
    }
    if (stub_is_capturing(stream)) return ncclSuccess; /* it goes into a graph that nobody replays */
    struct call one = {stream, {.comm = comm, .peer = is_pair ? peer : -1, .is_send = is_send}};
    one.part.number = !is_pair ? comm->collectives++ : is_send ? comm->sent[peer]++ : comm->received[peer]++;
    if (group.depth == 0) {
        launch(&one, 1);
        return ncclSuccess;
    }
    if (!group.calls) group.calls = calloc(MAX_GROUP, sizeof *group.calls);
    if (group.n_calls == MAX_GROUP) abort();
    group.calls[group.n_calls++] = one;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    (void)in, (void)out, (void)n, (void)op;
    return call(comm, type, -1, 0, 0, stream);
}
ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    (void)in, (void)out, (void)n;
    return call(comm, type, -1, 0, 0, stream);
}
ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
    (void)in, (void)out, (void)n, (void)op;
    return call(comm, type, -1, 0, 0, stream);
}
ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    (void)in, (void)out, (void)n;
    return call(comm, type, root, 0, 0, stream);
}
/* Through its own exported name, as some versions do: whoever stands in front sees both. */
ncclResult_t ncclBcast(void *data, size_t n, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
    return ncclBroadcast(data, data, n, type, root, comm, stream);
}
ncclResult_t ncclReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    (void)in, (void)out, (void)n, (void)op;
    return call(comm, type, root, 0, 0, stream);
}
ncclResult_t ncclAlltoAll(const void *in, void *out, size_t n, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
    (void)in, (void)out, (void)n;
    return call(comm, type, -1, 0, 0, stream);
}
ncclResult_t ncclGather(const void *in, void *out, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
    (void)in, (void)out, (void)n;
    return call(comm, type, root, 0, 0, stream);
}
ncclResult_t ncclScatter(const void *in, void *out, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) {
    (void)in, (void)out, (void)n;
    return call(comm, type, root, 0, 0, stream);
}
ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    (void)in, (void)n;
    return peer < 0 ? ncclInvalidArgument : call(comm, type, peer, 1, 1, stream);
}
ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    (void)out, (void)n;
    return peer < 0 ? ncclInvalidArgument : call(comm, type, peer, 1, 0, stream);
}

/* Communicators. */

static struct ncclComm *opened(uint64_t id, int size, int rank, int is_blocking) {
    char path[512];
    struct ncclComm *comm = calloc(1, sizeof *comm);
    snprintf(path, sizeof path, "%s/comm-%016llx", getenv("STUB_NCCL_DIR"), (unsigned long long)id);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0) abort();
    comm->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    comm->id = id;
    comm->size = size;
    comm->rank = rank;
    comm->is_blocking = is_blocking;
    return comm;
}

static void announce(struct making *one) {
    struct ncclComm *parent = one->parent;
    if (!parent) {
        atomic_fetch_add(&one->comm->shared->joined, 1);
        told(one->comm->shared);
        return;
    }
    uint32_t round = parent->splits++;
    one->round = round + 1;
    parent->shared->ranks[parent->rank].color[round % MAX_SPLITS] = one->color;
    parent->shared->ranks[parent->rank].key[round % MAX_SPLITS] = one->key;
    atomic_store(&parent->shared->ranks[parent->rank].round, round + 1);
    told(parent->shared);
}

static void wait_for(struct making *one) {
    struct ncclComm *parent = one->parent;
    if (!parent) {
        until(one->comm, is_joined, NULL);
        atomic_store(&one->comm->state, ncclSuccess);
        return;
    }
    int size = 0, rank = 0, at = (int)((one->round - 1) % MAX_SPLITS);
    until(parent, has_come, &one->round);
    for (int r = 0; r < parent->size; r++) {
        if (parent->shared->ranks[r].color[at] != one->color) continue;
        size++;
        int key = parent->shared->ranks[r].key[at];
        rank += key < one->key || (key == one->key && r < parent->rank);
    }
    if (one->color == NCCL_NOCOLOR) *one->where = NULL;
    else *one->where = opened(mixed(mixed(parent->id, one->round), (uint64_t)one->color + 1), size, rank, parent->is_blocking);
    atomic_store(&parent->state, ncclSuccess);
}

static void *make_later(void *argument) {
    struct making *one = argument;
    usleep(20000);
    announce(one);
    wait_for(one);
    free(one);
    return NULL;
}

static ncclResult_t make(struct making one) {
    struct ncclComm *known = one.comm ? one.comm : one.parent;
    atomic_store(&known->state, ncclInProgress);
    if (!known->is_blocking) {
        pthread_t thread;
        struct making *copy = malloc(sizeof *copy);
        *copy = one;
        pthread_create(&thread, NULL, make_later, copy);
        pthread_detach(thread);
        return ncclInProgress;
    }
    if (group.depth > 0) {
        group.making[group.n_making++] = one;
        return ncclSuccess;
    }
    announce(&one);
    wait_for(&one);
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) { return getentropy(id, sizeof *id) ? ncclSystemError : ncclSuccess; }

static ncclResult_t init(ncclComm_t *where, int size, const ncclUniqueId *unique, int rank, int is_blocking) {
    uint64_t words[sizeof *unique / 8], id = 0;
    if (size < 1 || size > MAX_RANKS || rank < 0 || rank >= size) return ncclInvalidArgument;
    memcpy(words, unique, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) id = mixed(id, words[i]);
    *where = opened(id, size, rank, is_blocking);
    return make((struct making){.comm = *where, .where = where});
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank) {
    return init(comm, size, &id, rank, 1);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
    return init(comm, size, &id, rank, !config || config->blocking != 0);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int size, int rank, int n, ncclUniqueId *ids,
                                      ncclConfig_t *config) {
    return n < 1 ? ncclInvalidArgument : init(comm, size, &ids[0], rank, !config || config->blocking != 0);
}
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
    ncclUniqueId id;
    (void)devices;
    ncclGetUniqueId(&id);
    ncclGroupStart();
    for (int i = 0; i < n; i++) ncclCommInitRank(&comms[i], n, id, i);
    return ncclGroupEnd();
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *child, ncclConfig_t *config) {
    (void)config;
    if (!comm) return ncclInvalidArgument;
    return make((struct making){.parent = comm, .color = color, .key = key, .where = child});
}
ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int n, ncclComm_t *child, ncclConfig_t *config, int flags) {
    (void)config, (void)flags;
    int rank = comm->rank;
    uint64_t id = mixed(comm->id, 0xabcdu + comm->splits);
    for (int i = 0; i < n; i++) {
        rank -= excluded[i] < comm->rank;
        id = mixed(id, (uint64_t)excluded[i]); /* in the order given: the stub wants it the same everywhere */
    }
    *child = opened(id, comm->size - n, rank, 1);
    return make((struct making){.comm = *child, .where = child});
}

static void let_go(struct ncclComm *comm) {
    while (atomic_load(&comm->outstanding) > 0) usleep(500);
    munmap(comm->shared, sizeof *comm->shared);
    free(comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    let_go(comm);
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    for (int i = 0; i < group.n_calls; i++)
        if (group.calls[i].part.comm == comm) group.calls[i].part.comm = NULL;
    atomic_store(&comm->is_aborted, 1);
    told(comm->shared);
    let_go(comm);
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    while (atomic_load(&comm->outstanding) > 0) usleep(500);
    return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int *count) {
    *count = comm->size;
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank) {
    *rank = comm->rank;
    return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    *state = atomic_load(&comm->state);
    return ncclSuccess;
}

/* Groups. */

ncclResult_t ncclGroupStart(void) {
    group.depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
    if (group.depth == 0) return ncclInvalidUsage;
    if (--group.depth > 0) return ncclSuccess;
    ncclResult_t result = group.error;
    group.error = ncclSuccess;
    for (int i = 0; i < group.n_making; i++) announce(&group.making[i]);
    for (int i = 0; i < group.n_making; i++) wait_for(&group.making[i]);
    if (result == ncclSuccess) launch(group.calls, group.n_calls);
    group.n_making = group.n_calls = 0;
    return result;
}
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
    (void)info;
    if (group.depth == 0) return ncclInvalidUsage;
    if (--group.depth > 0) return ncclSuccess;
    for (int i = 0; i < group.n_calls; i++) {
        struct stub_part *part = &group.calls[i].part;
        if (part->peer < 0) part->comm->collectives--;
        else if (part->is_send) part->comm->sent[part->peer]--;
        else part->comm->received[part->peer]--;
    }
    group.n_calls = 0;
    return ncclSuccess;
}
