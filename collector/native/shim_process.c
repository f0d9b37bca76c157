/* What the shim knows of its process: the environment, its control block, and whether it is at work at all. */
#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_NOTES = 8 };

static struct ph_control no_control; /* nobody else's memory: its trap_id stays 0 */
struct ph_process ph_process = {.rank = -1, .local_rank = -1, .world_size = -1, .control = &no_control};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool has_started, has_fork_handler;
static char notes[MAX_NOTES][384];
static int n_notes;

uint64_t ph_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The number in a variable of the environment, `otherwise` where there is none. */
static int32_t number(const char *name, int32_t otherwise) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return otherwise;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno || *end || value < INT32_MIN || value > INT32_MAX ? otherwise : (int32_t)value;
}

/* When this process began, in clock ticks since boot (field 22 of its stat file); 0 where that cannot be read. */
static uint64_t read_start_ticks(void) {
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    text[size > 0 ? size : 0] = 0;
    char *at = strrchr(text, ')'); /* the name before it may hold spaces and brackets */
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

/* Whether the hooks of torch's process groups have said that they write in this process (instrument/recorder.py). */
static bool hooks_write(void) {
    char path[sizeof ph_process.run_dir + 64];
    snprintf(path, sizeof path, "%s/hooks/%u-%llu", ph_process.run_dir, ph_process.pid,
             (unsigned long long)ph_process.start_ticks);
    return access(path, F_OK) == 0;
}

static void write_notes(void) {
    char path[sizeof ph_process.run_dir + 64], scratch[sizeof path + 8];
    snprintf(path, sizeof path, "%s/notes", ph_process.run_dir);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/notes/%u-" PH_PART ".json", ph_process.run_dir, ph_process.pid);
    snprintf(scratch, sizeof scratch, "%s.new", path);
    FILE *file = fopen(scratch, "we");
    if (!file) return; /* a full disk or no folder: there is no place left to complain */
    fprintf(file, "{\"pid\": %u, \"rank\": %d, \"notes\": [", ph_process.pid, ph_process.rank);
    for (int i = 0; i < n_notes; i++) {
        fprintf(file, "%s\"", i ? ", " : "");
        for (const char *c = notes[i]; *c; c++) fputc(*c == '"' || *c == '\\' || (unsigned char)*c < ' ' ? '?' : *c, file);
        fputc('"', file);
    }
    fputs("]}", file);
    if (fclose(file) == 0) rename(scratch, path);
    else unlink(scratch);
}

static void note(const char *what, int error) {
    char reason[96] = "";
    if (n_notes == MAX_NOTES) return;
    if (error) snprintf(reason, sizeof reason, ": %s", strerrordesc_np(error) ? strerrordesc_np(error) : "?");
    snprintf(notes[n_notes++], sizeof notes[0], "%s%s", what, reason);
    write_notes();
}

void ph_process_note(const char *what, int error) {
    pthread_mutex_lock(&lock);
    note(what, error);
    pthread_mutex_unlock(&lock);
}

void ph_process_fail(const char *what, int error) {
    pthread_mutex_lock(&lock);
    atomic_store(&ph_process.is_on, false);
#ifdef PH_PROFILER
    ph_frames_stop();
#endif
    ph_rings_switch_off();
    if (!ph_process.is_broken) {
        char text[280];
        ph_process.is_broken = true;
        snprintf(text, sizeof text, "the " PH_TITLE " is off, calls go unseen: %s", what);
        note(text, error);
    }
    pthread_mutex_unlock(&lock);
}

#ifndef PH_PROFILER /* the plugin can hold nobody, so it makes no control block */
/* Makes and maps the control block; a block of our own stays where that fails: no trap, and nothing else is lost. */
static void make_control(void) {
    char path[sizeof ph_process.run_dir + 64], scratch[sizeof path + 8];
    snprintf(path, sizeof path, "%s/control", ph_process.run_dir);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/control/%u.control", ph_process.run_dir, ph_process.pid);
    snprintf(scratch, sizeof scratch, "%s.new", path);
    unlink(scratch);
    int fd = open(scratch, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, PH_CONTROL_BYTES);
    void *memory = error ? MAP_FAILED : mmap(NULL, PH_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && memory == MAP_FAILED) error = errno;
    if (fd >= 0) close(fd);
    if (!error) {
        struct ph_control *control = memory;
        control->magic = PH_CONTROL_MAGIC;
        control->version = PH_CONTROL_VERSION;
        control->pid = ph_process.pid;
        control->process_start_ticks = ph_process.start_ticks;
        control->rank = ph_process.rank;
        if (rename(scratch, path) == 0) {
            atomic_store(&ph_process.control, control);
            return;
        }
        error = errno;
        munmap(memory, PH_CONTROL_BYTES);
    }
    if (fd >= 0) unlink(scratch);
    note("no control block, this process cannot be held", error);
}
#endif

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork_in_parent(void) { pthread_mutex_unlock(&lock); }
static void after_fork_in_child(void) {
    pthread_mutex_unlock(&lock);
    atomic_store(&ph_process.is_on, false);
    atomic_store(&ph_process.control, &no_control); /* the parent's stays mapped: another thread's hands are on it */
    has_started = false;
    n_notes = 0;
    ph_trap_forget();
    ph_ring_forget();
#ifndef PH_HOLD
    ph_comm_forget();
#endif
#ifndef PH_PROFILER
    ph_timing_forget();
#endif
}

bool ph_process_start(void) {
    pthread_mutex_lock(&lock);
    if (!has_started) {
        const char *run_dir = getenv("PACEHOUND_RUN_DIR"), *job = getenv("PACEHOUND_JOB");
        has_started = true;
        if (!has_fork_handler) pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
        has_fork_handler = true;
        if (run_dir && *run_dir && strlen(run_dir) < sizeof ph_process.run_dir && !ph_process.is_broken) {
            strcpy(ph_process.run_dir, run_dir);
            snprintf(ph_process.job, sizeof ph_process.job, "%s", job ? job : "");
            ph_process.pid = (uint32_t)getpid();
            ph_process.start_ticks = read_start_ticks();
            ph_process.rank = number("RANK", -1);
            ph_process.local_rank = number("LOCAL_RANK", -1);
            ph_process.world_size = number("WORLD_SIZE", -1);
            ph_process.attempt = number("PACEHOUND_ATTEMPT", 0) + number("TORCHELASTIC_RESTART_COUNT", 0);
            ph_process.has_hooks = hooks_write();
#ifndef PH_PROFILER
            make_control();
#endif
#ifndef PH_PROFILER
            ph_cuda_start();
#endif
            atomic_store(&ph_process.is_on, true);
        }
    }
    pthread_mutex_unlock(&lock);
    return atomic_load(&ph_process.is_on);
}
