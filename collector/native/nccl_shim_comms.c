/* NCCL's functions that make and end communicators, seen on their way (see nccl_shim.c).
 *
 * A communicator is over when it is finalized, destroyed or aborted, whichever comes first. ncclCommRevoke is let
 * through: what is revoked may still be shrunk.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "real.h"
#include "shim.h"

void ph_births_of_group(struct ph_thread *self, ncclResult_t result) {
    uint32_t n = self->n_births;
    self->n_births = 0;
    for (uint32_t i = 0; i < n && (result == ncclSuccess || result == ncclInProgress); i++) {
        const struct ph_birth *birth = &self->births[i];
        if (result == ncclSuccess || !birth->parent) ph_comm_born(birth, *birth->where);
        else ph_births_later(birth);
    }
}

static struct ph_birth new_birth(ncclComm_t *where, int32_t size, int32_t rank, const ncclConfig_t *config) {
    struct ph_birth birth = {.where = where, .size = size, .rank = rank, .world_rank = -1, .name = "nccl"};
    if (config && config->magic == (unsigned)NCCL_CONFIG_MAGIC && config->size >= sizeof *config && config->comm_name)
        snprintf(birth.name, sizeof birth.name, "%s", config->comm_name);
    return birth;
}

/* Called after the real function: `birth` is made now, at the end of the group, or when its parent is ready. */
static void made(struct ph_thread *self, const struct ph_birth *birth, ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress) return;
    if (self->depth == 0) {
        if (result == ncclSuccess || !birth->parent) ph_comm_born(birth, *birth->where);
        else ph_births_later(birth);
        return;
    }
    if (!self->births) self->births = calloc(PH_MAX_BIRTHS, sizeof *self->births);
    if (self->births && self->n_births < PH_MAX_BIRTHS) self->births[self->n_births++] = *birth;
    else ph_process_note("a communicator is not watched: too many are made in one group", 0);
}

/* The thread, where a communicator that it makes is to be seen. */
static struct ph_thread *making(void) {
    struct ph_thread *self = ph_thread();
    return self && !self->is_inside && ph_process_start() ? self : NULL;
}

/* NCCL is asked to make `birth` by `call`; its result. */
#define MAKE(self, birth, call)                \
    ({                                         \
        (self)->is_inside = true;              \
        ncclResult_t result_ = (call);         \
        (self)->is_inside = false;             \
        made((self), &(birth), result_);       \
        result_;                               \
    })

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank);
EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank) {
    __typeof__(&ncclCommInitRank) real = REAL(ncclCommInitRank);
    struct ph_thread *self = making();
    if (!real) return ncclSystemError;
    if (!self) return real(comm, size, id, rank);
    struct ph_birth birth = new_birth(comm, size, rank, NULL);
    ph_id_of_init(birth.handle, &id);
    return MAKE(self, birth, real(comm, size, id, rank));
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
    __typeof__(&ncclCommInitRankConfig) real = REAL(ncclCommInitRankConfig);
    struct ph_thread *self = making();
    if (!real) return ncclSystemError;
    if (!self) return real(comm, size, id, rank, config);
    struct ph_birth birth = new_birth(comm, size, rank, config);
    ph_id_of_init(birth.handle, &id);
    return MAKE(self, birth, real(comm, size, id, rank, config));
}

EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *, int, int, int, ncclUniqueId *, ncclConfig_t *);
EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int size, int rank, int n_ids, ncclUniqueId *ids,
                                             ncclConfig_t *config) {
    __typeof__(&ncclCommInitRankScalable) real = REAL(ncclCommInitRankScalable);
    struct ph_thread *self = making();
    if (!real) return ncclSystemError;
    if (!self || n_ids < 1 || !ids) return real(comm, size, rank, n_ids, ids, config);
    struct ph_birth birth = new_birth(comm, size, rank, config);
    ph_id_of_init(birth.handle, &ids[0]); /* their order is the same on all ranks */
    return MAKE(self, birth, real(comm, size, rank, n_ids, ids, config));
}

EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices);
EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
    static _Atomic uint32_t ordinal;
    __typeof__(&ncclCommInitAll) real = REAL(ncclCommInitAll);
    struct ph_thread *self = making();
    if (!real) return ncclSystemError;
    if (!self) return real(comms, n, devices);
    self->is_inside = true;
    ncclResult_t result = real(comms, n, devices);
    self->is_inside = false;
    if (result != ncclSuccess) return result;
    if (ph_process.world_size > 1) {
        ph_process_note("communicators of ncclCommInitAll are not watched in a job of several processes", 0);
        return result;
    }
    uint32_t which = atomic_fetch_add(&ordinal, 1);
    for (int rank = 0; rank < n; rank++) {
        struct ph_birth birth = new_birth(&comms[rank], n, rank, NULL);
        ph_id_of_all(birth.handle, which);
        ph_comm_born(&birth, comms[rank]);
    }
    return result;
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *);
EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *child, ncclConfig_t *config) {
    __typeof__(&ncclCommSplit) real = REAL(ncclCommSplit);
    struct ph_thread *self = making();
    struct ph_comm *parent = self ? ph_comm_find(comm) : NULL;
    if (!real) return ncclSystemError;
    if (!parent) return real(comm, color, key, child, config);
    struct ph_birth birth = new_birth(child, -1, -1, config);
    birth.parent = comm;
    birth.world_rank = parent->world_rank;
    ph_id_of_child(birth.handle, parent, PH_SPLIT, &color, 1);
    if (color != NCCL_NOCOLOR) return MAKE(self, birth, real(comm, color, key, child, config));
    self->is_inside = true; /* counted like everybody else's, and no communicator comes of it */
    ncclResult_t result = real(comm, color, key, child, config);
    self->is_inside = false;
    return result;
}

static int by_value(const void *a, const void *b) {
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    return (left > right) - (left < right);
}

EXPORT ncclResult_t ncclCommShrink(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);
EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int n, ncclComm_t *child, ncclConfig_t *config,
                                   int flags) {
    __typeof__(&ncclCommShrink) real = REAL(ncclCommShrink);
    struct ph_thread *self = making();
    struct ph_comm *parent = self ? ph_comm_find(comm) : NULL;
    int32_t *sorted = parent && excluded && n > 0 ? malloc((size_t)n * sizeof *sorted) : NULL;
    if (!real) return ncclSystemError;
    if (!sorted) return real(comm, excluded, n, child, config, flags);
    memcpy(sorted, excluded, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    struct ph_birth birth = new_birth(child, -1, -1, config);
    birth.parent = comm;
    birth.world_rank = parent->world_rank;
    ph_id_of_child(birth.handle, parent, PH_SHRINK, sorted, n);
    free(sorted);
    return MAKE(self, birth, real(comm, excluded, n, child, config, flags));
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    __typeof__(&ncclCommGetAsyncError) real = REAL(ncclCommGetAsyncError);
    if (!real) return ncclSystemError;
    ncclResult_t result = real(comm, state);
    if (PH_UNLIKELY(atomic_load_explicit(&ph_n_births_later, memory_order_relaxed) > 0) && result == ncclSuccess &&
        state && *state == ncclSuccess)
        ph_births_ready(comm);
    return result;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm);
EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    __typeof__(&ncclCommFinalize) real = REAL(ncclCommFinalize);
    if (!real) return ncclSystemError;
    ncclResult_t result = real(comm);
    if (result == ncclSuccess || result == ncclInProgress) ph_comm_gone(comm); /* after: what was open has ended in it */
    return result;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm);
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    __typeof__(&ncclCommDestroy) real = REAL(ncclCommDestroy);
    if (!real) return ncclSystemError;
    ph_comm_gone(comm); /* before: the next communicator may get the same handle at once, in another thread */
    return real(comm);
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm);
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    __typeof__(&ncclCommAbort) real = REAL(ncclCommAbort);
    if (!real) return ncclSystemError;
    ph_trap_abandon();
    ph_timing_abandon();
    ph_comm_gone(comm);
    return real(comm);
}
