/* The ring of each thread that calls NCCL (ring.h), and what a thread knows of its open group.
 *
 * One thread at a time writes a ring. When it ends, the next thread that comes takes the ring over: libraries make a thread
 * for a moment, and a file for each adds up. A process that ends says nothing, the agent sees that it is gone, and removes
 * the file when it has read it to its end after that.
 */
#define _GNU_SOURCE
#include "shim.h"

#include "ring_room.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAIN_CAPACITY = 16384, OTHER_CAPACITY = 2048, MAX_RINGS = 1024 };

static _Thread_local struct ph_thread *own;
static pthread_key_t at_end;
static pthread_once_t at_end_once = PTHREAD_ONCE_INIT;
static _Atomic uint32_t fork_generation, n_rings;

/* Rings whose threads have ended. */
struct idle_ring {
    struct ph_ring_header *header;
    uint32_t capacity;
};
static struct idle_ring idle[MAX_RINGS];
static uint32_t n_idle;

/* All that this process has made. */
static struct ph_ring_header *made[MAX_RINGS];
static _Atomic uint32_t n_made;
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t ring_bytes(uint32_t capacity) { return PH_RING_HEADER_BYTES + (size_t)capacity * PH_RECORD_BYTES; }

static void end_thread(void *data) {
    struct ph_thread *thread = data;
    if (thread->fork_generation == atomic_load(&fork_generation)) {
        if (thread->header) {
            pthread_mutex_lock(&idle_lock);
            idle[n_idle++] = (struct idle_ring){thread->header, thread->capacity};
            pthread_mutex_unlock(&idle_lock);
        }
        if (thread->waiting) munmap(thread->waiting, PH_MAX_WAITING * sizeof *thread->waiting);
        free(thread->births);
        free(thread);
    }
    own = NULL; /* another destructor may call NCCL yet: it gets a ring of its own */
}

static void make_key(void) { pthread_key_create(&at_end, end_thread); }

struct ph_thread *ph_thread(void) {
    struct ph_thread *self = own;
    if (PH_LIKELY(self != NULL)) return self;
    pthread_once(&at_end_once, make_key);
    self = calloc(1, sizeof *self);
    if (!self) return NULL;
    self->fork_generation = atomic_load(&fork_generation);
    pthread_setspecific(at_end, self);
    return own = self;
}

void ph_ring_forget(void) {
    atomic_fetch_add(&fork_generation, 1);
    atomic_store(&n_rings, 0);
    atomic_store(&n_made, 0);
    memset(made, 0, sizeof made);
    n_idle = 0;
    idle_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* whoever held it in the parent is not here */
    own = NULL; /* the parent's memory is ours too now; it is left alone */
}

void ph_rings_switch_off(void) {
    for (uint32_t i = 0; i < atomic_load(&n_made) && i < MAX_RINGS; i++)
        if (made[i]) made[i]->closed = PH_RING_OFF;
}

static void use_ring(struct ph_thread *self, struct ph_ring_header *header, uint32_t capacity) {
    self->header = header;
    self->records = (struct ph_record *)((char *)header + PH_RING_HEADER_BYTES);
    self->capacity = capacity;
    self->next = header->written;
}

static int map_ring(struct ph_thread *self, const char *scratch, const char *path, uint32_t tid) {
    int fd = open(scratch, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    /* Every block now: a store into a page that the file system cannot provide would be a SIGBUS. */
    int error = posix_fallocate(fd, 0, (off_t)ring_bytes(self->capacity));
    void *memory = error ? MAP_FAILED : mmap(NULL, ring_bytes(self->capacity), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && memory == MAP_FAILED) error = errno;
    close(fd);
    if (!error) {
        struct ph_ring_header *header = memory;
        header->magic = PH_RING_MAGIC;
        header->version = PH_RING_VERSION;
        header->header_bytes = PH_RING_HEADER_BYTES;
        header->record_bytes = PH_RECORD_BYTES;
        header->capacity = self->capacity;
        header->pid = ph_process.pid;
        header->tid = tid;
        header->process_start_ticks = ph_process.start_ticks;
        header->rank = ph_process.rank;
        header->local_rank = ph_process.local_rank;
        header->world_size = ph_process.world_size;
        header->attempt = ph_process.attempt;
        header->created_ns = ph_now_ns();
        if (rename(scratch, path) == 0) {
            made[atomic_fetch_add(&n_made, 1) % MAX_RINGS] = header;
            use_ring(self, header, self->capacity);
            return 0;
        }
        error = errno;
        munmap(memory, ring_bytes(self->capacity));
    }
    unlink(scratch);
    return error;
}

static bool take_over(struct ph_thread *self) {
    struct idle_ring found = {0};
    pthread_mutex_lock(&idle_lock);
    if (n_idle) found = idle[--n_idle];
    pthread_mutex_unlock(&idle_lock);
    if (found.header) use_ring(self, found.header, found.capacity);
    return found.header != NULL;
}

bool ph_ring_ready(struct ph_thread *self) {
    char path[sizeof ph_process.run_dir + 96], scratch[sizeof path + 8];
    if (PH_LIKELY(self->header != NULL)) return true;
    uint32_t tid = (uint32_t)syscall(SYS_gettid);
    if (tid != ph_process.pid && take_over(self)) return true; /* the main thread's is larger, and its own */
    if (atomic_fetch_add(&n_rings, 1) >= MAX_RINGS) {
        atomic_fetch_sub(&n_rings, 1);
        ph_process_fail("too many threads call NCCL", 0);
        return false;
    }
    snprintf(path, sizeof path, "%s/rings", ph_process.run_dir);
    mkdir(path, 0700);
    self->capacity = ph_ring_room(path, tid == ph_process.pid ? MAIN_CAPACITY : OTHER_CAPACITY);
    if (!self->capacity) {
        atomic_fetch_sub(&n_rings, 1);
        ph_process_fail("the rings of this run have their share of the shared memory", ENOSPC);
        return false;
    }
    snprintf(path, sizeof path, "%s/rings/%u-%u-" PH_RING_MARK "%llu.ring", ph_process.run_dir, ph_process.pid, tid,
             (unsigned long long)ph_now_ns());
    snprintf(scratch, sizeof scratch, "%s.new", path);
    int error = map_ring(self, scratch, path, tid);
    if (!error) return true;
    atomic_fetch_sub(&n_rings, 1);
    ph_process_fail("no room for a ring", error);
    return false;
}

/* A signal handler may come in between and write a record of its own: the index is taken first. */
struct ph_record *ph_ring_begin(struct ph_thread *self) {
    uint64_t index = self->next++;
    struct ph_record *record = self->records + (index & (self->capacity - 1));
    __atomic_store_n(&record->stamp, 2 * index + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    return record;
}

void ph_ring_commit(struct ph_thread *self, struct ph_record *record) {
    __atomic_store_n(&record->stamp, record->stamp + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&self->header->written, self->next, __ATOMIC_RELEASE);
}

void ph_ring_measured(struct ph_thread *self, uint64_t took_ns) {
    struct ph_ring_header *header = self->header;
    if (took_ns > PH_MEASURED_MOST_NS) return;
    __atomic_store_n(&header->measured_ns, header->measured_ns + took_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&header->measured_calls, header->measured_calls + 1, __ATOMIC_RELEASE);
}

void ph_ring_write(struct ph_thread *self, const struct ph_record *record) {
    if (!ph_ring_ready(self)) return;
    struct ph_record *slot = ph_ring_begin(self);
    memcpy((char *)slot + 8, (const char *)record + 8, PH_RECORD_BYTES - 8);
    ph_ring_commit(self, slot);
}
