/* A host for the profiler plugin, in NCCL's place: it plays recorded sequences of events through one of the plugin's
 * interfaces. The structures below are a second declaration of the ABI, made apart from the plugin's own, so that one
 * that is wrong does not agree with itself.
 *
 *   plugin_host LIBRARY API SCRIPT...        one thread per script; `wait NAME` and `tell NAME` order threads
 *
 * One event per line; NAME is any word, by which a handle is found again (handles are never cleared, so that stale ones
 * can be used on purpose):
 *
 *   init C HASH NRANKS RANK [COMMNAME]      final C
 *   group G C                               coll X C G FUNC COUNT TYPE CHANNELS SEQ ROOT ALGO PROTO
 *   p2p X C G FUNC COUNT TYPE PEER CHANNELS
 *   kernel K C X CHANNEL GPU_US             kstop K GPU_US          (in us after the host's start, on the GPU's clock)
 *   op O C X CHANNEL PEER STEPS SEND [PID]  step S C O STEP         stop NAME          state NAME STATE
 *   kill        (itself, as the kernel does for memory)
 *   sleep US    repeat N … again (one level; # in a name is the repetition's number)    fork
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct coll4 { uint64_t seq; const char *func; const void *send; void *recv; size_t count; int root; const char *type;
               uint8_t channels, warps; const char *algo, *proto; };
struct coll5 { uint64_t seq; const char *func; const void *send; void *recv; size_t count; int root; const char *type;
               uint8_t channels, warps; const char *algo, *proto; void *group; };
struct p2p4 { const char *func; void *buffer; const char *type; size_t count; int peer; uint8_t channels; };
struct p2p5 { const char *func; void *buffer; const char *type; size_t count; int peer; uint8_t channels; void *group; };
struct op { pid_t pid; uint8_t channel; int peer, steps, chunk, send; };
struct kernel { uint8_t channel; uint64_t timer; };
struct descr4 { uint8_t type; void *parent; int rank;
                union { struct coll4 coll; struct p2p4 p2p; struct op op; int step; struct kernel kernel; } u; };
struct descr5 { uint64_t type; void *parent; int rank;
                union { struct coll5 coll; struct p2p5 p2p; struct op op; int step; struct kernel kernel; char ce[96]; } u; };
union args { size_t transferred; int appended; void *data; uint64_t timer; };
typedef void (*logger)(int, unsigned long, const char *, int, const char *, ...);
struct api { const char *name; void *init; int (*start)(void *, void **, void *); int (*stop)(void *);
             int (*record)(void *, int, union args *); int (*final)(void *); };

static const struct api *api;
static int version;
static uint64_t began_ns;
enum { NAMES = 1 << 16, GPU_AHEAD_NS = 7000000 };
static struct { char name[40]; void *handle; } names[NAMES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What the plugin asks the NCCL behind its logger. */
__attribute__((visibility("default"))) int ncclGetVersion(int *found) {
    const char *said = getenv("HOST_NCCL_VERSION");
    *found = said ? atoi(said) : 23007;
    return 0;
}
static void write_log(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
    (void)level, (void)flags, (void)file, (void)line, (void)format;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t gpu_ns(const char *us) {
    if (us[0] == '-') return 0; /* not told */
    if (us[0] == 'n') return now_ns() + GPU_AHEAD_NS;
    return began_ns + GPU_AHEAD_NS + 1000 * strtoull(us, NULL, 10);
}

static void **slot(const char *name) {
    uint32_t at = 5381;
    for (const char *c = name; *c; c++) at = at * 33 + (unsigned char)*c;
    pthread_mutex_lock(&lock);
    for (at %= NAMES; names[at].name[0] && strcmp(names[at].name, name); at = (at + 1) % NAMES) {}
    if (!names[at].name[0]) snprintf(names[at].name, sizeof names[at].name, "%s", name);
    pthread_mutex_unlock(&lock);
    return &names[at].handle;
}
static void *get(const char *name) { return __atomic_load_n(slot(name), __ATOMIC_ACQUIRE); }
static void put(const char *name, void *handle) { __atomic_store_n(slot(name), handle, __ATOMIC_RELEASE); }
static bool is_told(const char *name) { char key[40]; snprintf(key, sizeof key, "told %.30s", name); return get(key); }
static void tell(const char *name) { char key[40]; snprintf(key, sizeof key, "told %.30s", name); put(key, (void *)1); }

static void fail(const char *what) {
    fprintf(stderr, "plugin_host: %s\n", what);
    _exit(70);
}
static void expect(int result) { if (result) fail("the plugin returned an error"); }

static void start(uint64_t type, char **w) {
    struct descr4 d4;
    struct descr5 d5;
    memset(&d4, 0xa5, sizeof d4); /* what NCCL leaves in padding is not zero */
    memset(&d5, 0xa5, sizeof d5);
    d4.type = (uint8_t)type;
    d5.type = type;
    d4.rank = d5.rank = 0;
    d4.parent = d5.parent = NULL;
    void *handle = NULL;
    switch (type) {
        case 2: {
            struct coll4 c = {strtoull(w[8], 0, 10), w[4], 0, 0, strtoull(w[5], 0, 10), atoi(w[9]), w[6],
                              (uint8_t)atoi(w[7]), 16, w[10], w[11]};
            d4.u.coll = c;
            memcpy(&d5.u.coll, &c, sizeof c);
            d4.parent = d5.u.coll.group = get(w[3]);
            break;
        }
        case 4: {
            struct p2p4 p = {w[4], 0, w[6], strtoull(w[5], 0, 10), atoi(w[7]), (uint8_t)atoi(w[8])};
            d4.u.p2p = p;
            memcpy(&d5.u.p2p, &p, sizeof p);
            d4.parent = d5.u.p2p.group = get(w[3]);
            break;
        }
        case 64:
            d4.parent = d5.parent = get(w[3]);
            d4.u.kernel = d5.u.kernel = (struct kernel){(uint8_t)atoi(w[4]), gpu_ns(w[5])};
            break;
        case 8:
            d4.parent = d5.parent = get(w[3]);
            d4.u.op = d5.u.op = (struct op){w[8] ? atoi(w[8]) : getpid(), (uint8_t)atoi(w[4]), atoi(w[5]), atoi(w[6]), 1 << 19,
                                            atoi(w[7])};
            break;
        case 16:
            d4.parent = d5.parent = get(w[3]);
            d4.u.step = d5.u.step = atoi(w[4]);
            break;
    }
    expect(api->start(get(w[2]), &handle, version == 4 ? (void *)&d4 : (void *)&d5));
    put(w[1], handle);
}

static void initialise(char **w) {
    void *context = (void *)1;
    int mask = -1;
    uint64_t hash = strtoull(w[2], 0, 16);
    const char *name = w[5];
    if (version == 4)
        expect(((int (*)(void **, int *, const char *, uint64_t, int, int, int, logger))api->init)(
            &context, &mask, name, hash, 1, atoi(w[3]), atoi(w[4]), write_log));
    else
        expect(((int (*)(void **, uint64_t, int *, const char *, int, int, int, logger))api->init)(
            &context, hash, &mask, name, 1, atoi(w[3]), atoi(w[4]), write_log));
    put(w[1], context);
    printf("mask %d context %d\n", mask, context != NULL);
    fflush(stdout);
}

static void play(char *line) {
    char *w[16] = {0}, *rest = NULL;
    int n = 0;
    for (char *word = strtok_r(line, " \n", &rest); word && n < 15; word = strtok_r(NULL, " \n", &rest)) w[n++] = word;
    if (!n) return;
    if (!strcmp(w[0], "init")) initialise(w);
    else if (!strcmp(w[0], "final")) expect(api->final(get(w[1])));
    else if (!strcmp(w[0], "group")) start(1, w);
    else if (!strcmp(w[0], "coll")) start(2, w);
    else if (!strcmp(w[0], "p2p")) start(4, w);
    else if (!strcmp(w[0], "op")) start(8, w);
    else if (!strcmp(w[0], "step")) start(16, w);
    else if (!strcmp(w[0], "kernel")) start(64, w);
    else if (!strcmp(w[0], "stop")) expect(api->stop(get(w[1])));
    else if (!strcmp(w[0], "state")) expect(api->record(get(w[1]), atoi(w[2]), NULL));
    else if (!strcmp(w[0], "ktime") || !strcmp(w[0], "kstop")) { /* ktime: without the stop that should follow */
        union args args = {.timer = gpu_ns(w[2])};
        expect(api->record(get(w[1]), 22, &args));
        if (w[0][1] == 's') expect(api->stop(get(w[1])));
    } else if (!strcmp(w[0], "sleep")) usleep((useconds_t)atoi(w[1]));
    else if (!strcmp(w[0], "tell")) tell(w[1]);
    else if (!strcmp(w[0], "wait")) while (!is_told(w[1])) usleep(200);
    else if (!strcmp(w[0], "kill")) raise(SIGKILL);
    else if (!strcmp(w[0], "fork")) {
        pid_t child = fork();
        int status;
        if (!child) { /* it has the handles, and must not touch the parent's rings */
            for (int i = 0; i < NAMES; i++)
                if (names[i].handle && (uintptr_t)names[i].handle > 1) api->stop(names[i].handle), api->record(names[i].handle, 22, &(union args){.timer = 1});
            _exit(0);
        }
        if (waitpid(child, &status, 0) < 0 || status) fail("the child did not leave in good order");
    } else fail(w[0]);
}

static void *run(void *path) {
    FILE *file = fopen(path, "r");
    static _Thread_local char lines[4096][128];
    int n = 0, from = -1;
    long left = 0, round = 0;
    if (!file) fail("no such script");
    while (n < 4096 && fgets(lines[n], sizeof lines[n], file)) n++;
    fclose(file);
    for (int i = 0; i < n; i++) {
        char line[256], *to = line;
        if (!strncmp(lines[i], "repeat", 6)) { from = i; left = atol(lines[i] + 7); round = 0; continue; }
        if (!strncmp(lines[i], "again", 5)) { if (++round < left) i = from; continue; }
        for (const char *c = lines[i]; *c && to < line + 200; c++) {
            if (*c == '#') to += sprintf(to, "%ld", round);
            else *to++ = *c;
        }
        *to = 0;
        play(line);
    }
    return NULL;
}

int main(int argc, char **argv) {
    char symbol[32];
    pthread_t threads[8];
    began_ns = now_ns();
    if (argc < 4) fail("plugin_host LIBRARY API SCRIPT...");
    version = atoi(argv[2]);
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) fail(dlerror());
    api = dlsym(library, symbol);
    if (!api) fail(symbol);
    if (strcmp(api->name, "pacehound")) fail(api->name);
    for (int i = 3; i < argc; i++) pthread_create(&threads[i - 3], NULL, run, argv[i]);
    for (int i = 3; i < argc; i++) pthread_join(threads[i - 3], NULL);
    dlclose(library);
    printf("done\n");
    return 0;
}
