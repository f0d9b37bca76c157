/* Communicators: from NCCL's handle to our entry without a lock, and ids that all members compute alike. */
#define _GNU_SOURCE
#include "shim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "attempt_mark.h"
#include "blake2b.h"

enum { SLOTS = 1 << 13, BACKEND_NCCL = 2, MAX_RANKS = 1 << 20, MAX_LATER = 1024 };

/* Open addressing. A slot's key is NULL (never used), GONE, or a handle; its entry is set before its key is. */
static struct {
    _Atomic(ncclComm_t) key;
    struct ph_comm *_Atomic comm;
} slots[SLOTS];
#define GONE ((ncclComm_t)(uintptr_t)1)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything below, and of changes above */
static uint32_t n_used;
static struct ph_comm *free_comms, *_Atomic world;
static uint32_t n_worlds;
static struct ph_birth later[MAX_LATER];
_Atomic uint32_t ph_n_births_later;

static size_t slot_of(ncclComm_t key) { return (size_t)((((uintptr_t)key >> 4) * 0x9e3779b97f4a7c15u) >> 51); }

struct ph_comm *ph_comm_find(ncclComm_t key) {
    if (PH_UNLIKELY((uintptr_t)key <= (uintptr_t)GONE)) return NULL;
    for (size_t i = slot_of(key), n = 0; n < SLOTS; i = (i + 1) % SLOTS, n++) {
        ncclComm_t found = atomic_load_explicit(&slots[i].key, memory_order_acquire);
        if (PH_LIKELY(found == key)) return atomic_load_explicit(&slots[i].comm, memory_order_relaxed);
        if (!found) return NULL;
    }
    return NULL;
}

struct ph_comm *ph_comm_world(void) { return atomic_load_explicit(&world, memory_order_relaxed); }

/* With the lock. A table that is nearly full takes no more: looking up an unknown one would walk all of it. */
static bool insert(ncclComm_t key, struct ph_comm *comm) {
    for (size_t i = slot_of(key), n = 0; n < SLOTS; i = (i + 1) % SLOTS, n++) {
        ncclComm_t found = atomic_load_explicit(&slots[i].key, memory_order_relaxed);
        if (found && found != GONE) continue;
        if (!found && n_used >= SLOTS * 3 / 4) return false;
        n_used += !found;
        atomic_store_explicit(&slots[i].comm, comm, memory_order_relaxed);
        atomic_store_explicit(&slots[i].key, key, memory_order_release);
        return true;
    }
    return false;
}

/* With the lock. */
static void erase(ncclComm_t key) {
    for (size_t i = slot_of(key), n = 0; n < SLOTS; i = (i + 1) % SLOTS, n++) {
        ncclComm_t found = atomic_load_explicit(&slots[i].key, memory_order_relaxed);
        if (!found) return;
        if (found != key) continue;
        bool is_last = !atomic_load_explicit(&slots[(i + 1) % SLOTS].key, memory_order_relaxed);
        atomic_store(&slots[i].key, is_last ? NULL : GONE);
        n_used -= is_last;
        return;
    }
}

/* Room for the pairs' counters; without memory the pairs of this communicator go unseen. */
static struct ph_comm *make(int32_t size) {
    struct ph_comm *comm = free_comms;
    if (comm) free_comms = comm->next_free;
    else comm = calloc(1, sizeof *comm);
    if (!comm) return NULL;
    if (comm->n_pairs < 2 * size) { /* an entry that goes round keeps its old counters: somebody may hold them */
        comm->pairs = calloc((size_t)size * 2, sizeof *comm->pairs);
        comm->n_pairs = comm->pairs ? 2 * size : 0;
    } else {
        for (int32_t i = 0; i < comm->n_pairs; i++) atomic_store_explicit(&comm->pairs[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&comm->collectives, 0, memory_order_relaxed);
    atomic_store_explicit(&comm->children[PH_SPLIT], 0, memory_order_relaxed);
    atomic_store_explicit(&comm->children[PH_SHRINK], 0, memory_order_relaxed);
    return comm;
}

static void write_members(struct ph_thread *self, struct ph_record *record, const struct ph_comm *comm) {
    const int32_t per_record = sizeof record->members.members / sizeof record->members.members[0];
    memset(record->bytes, 0, sizeof record->bytes);
    if (!comm->is_full || comm->rank != (int32_t)comm->world_rank) {
        record->kind = PH_PLACE;
        record->place.n_members = comm->size;
        record->place.index = comm->rank;
        ph_ring_write(self, record);
        return;
    }
    record->kind = PH_MEMBERS; /* everybody is in it, in the order of the world */
    for (int32_t first = 0; first < comm->size; first += per_record) {
        int32_t n = comm->size - first < per_record ? comm->size - first : per_record;
        record->members.n_members = n;
        for (int32_t i = 0; i < n; i++) record->members.members[i] = first + i;
        ph_ring_write(self, record);
    }
}

static void announce(struct ph_thread *self, const struct ph_comm *comm, const char *name, uint32_t generation) {
    struct ph_record record;
    if (atomic_load(&ph_shim_is_silent)) return;
    memset(&record, 0, sizeof record);
    record.kind = PH_GROUP;
    record.rank = comm->world_rank;
    memcpy(record.handle, comm->handle, sizeof record.handle);
    record.group.created_ns = ph_now_ns();
    record.group.generation = (int32_t)generation;
    record.group.world_size = ph_process.world_size;
    record.group.n_members = comm->size;
    record.group.is_world = comm->is_full && !ph_process.has_hooks; /* a job has one world, and theirs says more */
    record.group.backend = BACKEND_NCCL;
    memcpy(record.group.name, name, sizeof record.group.name);
    ph_ring_write(self, &record);
    write_members(self, &record, comm);
}

/* What is to be asked of NCCL once the communicator is there: all of it, where birth->size is -1. */
static bool ask(struct ph_birth *birth, ncclComm_t key) {
    typedef ncclResult_t (*ask_t)(ncclComm_t, int *);
    static _Atomic(ask_t) count, user_rank;
    if (birth->size >= 0) return true;
    if (!atomic_load(&count)) {
        atomic_store(&user_rank, (ask_t)ph_real_find("ncclCommUserRank", (void *)ask));
        atomic_store(&count, (ask_t)ph_real_find("ncclCommCount", (void *)ask));
    }
    ask_t ask_count = atomic_load(&count), ask_rank = atomic_load(&user_rank);
    return ask_count && ask_rank && ask_count(key, &birth->size) == ncclSuccess &&
           ask_rank(key, &birth->rank) == ncclSuccess;
}

static void *current_context(void) {
    int (*get)(void **) = (int (*)(void **))ph_cuda_find("cuCtxGetCurrent");
    void *context = NULL;
    return get && get(&context) == 0 ? context : NULL;
}

/* With the lock. The environment's word; else that of the world communicator, which this process has met first. */
static int64_t world_rank(const struct ph_birth *birth, bool is_full) {
    static int32_t learned = -1;
    if (ph_process.rank >= 0) return ph_process.rank;
    if (is_full) return learned = birth->rank;
    if (birth->world_rank >= 0) return birth->world_rank;
    return learned >= 0 ? learned : birth->rank;
}

void ph_comm_born(const struct ph_birth *told, ncclComm_t key) {
    struct ph_birth birth = *told;
    struct ph_thread *self = ph_thread();
    uint32_t generation = 0;
    if (!self || (uintptr_t)key <= (uintptr_t)GONE || !ph_process_start()) return;
    ph_cuda_start();
    self->is_inside = true;
    bool is_known = ask(&birth, key);
    self->is_inside = false;
    if (!is_known || birth.size < 1 || birth.size > MAX_RANKS || birth.rank < 0 || birth.rank >= birth.size) {
        ph_process_note("a communicator is not watched: NCCL did not say how many ranks it has", 0);
        return;
    }
    ph_comm_gone(key);
    pthread_mutex_lock(&lock);
    if (ph_process.world_size <= 0) ph_process.world_size = birth.size; /* nobody has said: the first one is the world */
    struct ph_comm *comm = make(birth.size);
    if (comm) {
        memcpy(comm->handle, birth.handle, sizeof comm->handle);
        comm->rank = birth.rank;
        comm->size = birth.size;
        comm->context = current_context();
        atomic_store(&comm->key, key);
        struct ph_comm *now = ph_comm_world(); /* it may have several ranks in this process */
        comm->is_full = birth.size == ph_process.world_size && (!now || !memcmp(now->handle, comm->handle, 16));
        comm->world_rank = (uint32_t)world_rank(&birth, comm->is_full);
        if (comm->is_full) generation = now ? n_worlds - 1 : n_worlds++;
        if (!insert(key, comm)) {
            comm->next_free = free_comms;
            free_comms = comm;
            comm = NULL;
        } else if (comm->is_full && !now) {
            atomic_store(&world, comm);
        }
    }
    pthread_mutex_unlock(&lock);
    if (comm) announce(self, comm, birth.name, generation);
    else ph_process_note("a communicator is not watched: there are too many of them", 0);
}

void ph_comm_gone(ncclComm_t key) {
    struct ph_thread *self = ph_thread();
    struct ph_record record;
    pthread_mutex_lock(&lock);
    struct ph_comm *comm = ph_comm_find(key);
    if (comm) {
        memset(&record, 0, sizeof record);
        record.kind = PH_DESTROY;
        record.rank = comm->world_rank;
        memcpy(record.handle, comm->handle, sizeof record.handle);
        erase(key);
        atomic_store(&comm->key, NULL);
        if (ph_comm_world() == comm) atomic_store(&world, NULL);
        comm->next_free = free_comms;
        free_comms = comm;
    }
    pthread_mutex_unlock(&lock);
    if (comm && self && atomic_load(&ph_process.is_on) && !atomic_load(&ph_shim_is_silent)) ph_ring_write(self, &record);
}

int ph_comm_contexts(void **contexts, int room) {
    int n = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < SLOTS && n < room; i++) {
        if ((uintptr_t)atomic_load(&slots[i].key) <= (uintptr_t)GONE) continue;
        void *context = atomic_load(&slots[i].comm)->context;
        int at = 0;
        while (at < n && contexts[at] != context) at++;
        if (context && at == n) contexts[n++] = context;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

void ph_comm_forget(void) {
    pthread_mutex_init(&lock, NULL); /* whoever held it in the parent is not here */
    for (size_t i = 0; i < SLOTS; i++)
        if (atomic_load(&slots[i].key)) atomic_store(&slots[i].key, NULL);
    n_used = n_worlds = 0;
    atomic_store(&world, NULL);
    atomic_store(&ph_n_births_later, 0);
}

/* Ids. The job is part of the first one, and with it of all; each has the mark of the attempt, none is made of it. */

static void begin(struct ph_blake2b *state, const char *kind) {
    ph_process_start();
    static const uint32_t first_attempt = 0;
    ph_blake2b_begin(state, 16);
    ph_blake2b_add(state, kind, strlen(kind) + 1);
    ph_blake2b_add(state, ph_process.job, strlen(ph_process.job) + 1);
    ph_blake2b_add(state, &first_attempt, sizeof first_attempt);
}

static void end(struct ph_blake2b *state, uint8_t id[16]) {
    ph_blake2b_end(state, id);
    ph_mark_attempt(id, ph_process.attempt);
}

void ph_id_of_init(uint8_t id[16], const ncclUniqueId *unique) {
    struct ph_blake2b state;
    begin(&state, "nccl init");
    ph_blake2b_add(&state, unique, sizeof *unique);
    end(&state, id);
}

void ph_id_of_all(uint8_t id[16], uint32_t ordinal) {
    struct ph_blake2b state;
    begin(&state, "nccl init all"); /* one process has all of its ranks: no other one has to agree */
    ph_blake2b_add(&state, &ph_process.pid, sizeof ph_process.pid);
    ph_blake2b_add(&state, &ph_process.start_ticks, sizeof ph_process.start_ticks);
    ph_blake2b_add(&state, &ordinal, sizeof ordinal);
    end(&state, id);
}

void ph_id_of_child(uint8_t id[16], struct ph_comm *parent, enum ph_child kind, const int32_t *what, int n) {
    struct ph_blake2b state;
    uint32_t ordinal = atomic_fetch_add(&parent->children[kind], 1);
    uint8_t plain[16];
    begin(&state, kind == PH_SPLIT ? "nccl split" : "nccl shrink");
    memcpy(plain, parent->handle, sizeof plain);
    ph_mark_attempt(plain, ph_process.attempt); /* takes it off */
    ph_blake2b_add(&state, plain, sizeof plain);
    ph_blake2b_add(&state, &ordinal, sizeof ordinal);
    ph_blake2b_add(&state, what, (size_t)n * sizeof *what);
    end(&state, id);
}

/* Made without blocking. */

void ph_births_later(const struct ph_birth *birth) {
    pthread_mutex_lock(&lock);
    uint32_t n = atomic_load(&ph_n_births_later);
    if (n < MAX_LATER) {
        later[n] = *birth;
        atomic_store(&ph_n_births_later, n + 1);
    }
    pthread_mutex_unlock(&lock);
    if (n == MAX_LATER) ph_process_note("a communicator is not watched: too many are being made at once", 0);
}

void ph_births_ready(ncclComm_t key) {
    for (;;) {
        struct ph_birth found;
        ncclComm_t born = NULL;
        pthread_mutex_lock(&lock);
        uint32_t n = atomic_load(&ph_n_births_later);
        for (uint32_t i = 0; i < n && !born; i++) {
            if (later[i].parent != key) continue;
            found = later[i];
            born = *found.where; /* NCCL itself has just written there, so the caller's variable is still one */
            later[i--] = later[--n];
            atomic_store(&ph_n_births_later, n);
        }
        pthread_mutex_unlock(&lock);
        if (!born) return;
        ph_comm_born(&found, born);
    }
}
