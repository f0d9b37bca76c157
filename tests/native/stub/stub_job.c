/* A job of one rank that does what its scripts say, one thread per script. See tests/native/stub_jobs.py. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stub_nccl.h"

enum { MAX_COMMS = 128, MAX_LINES = 20000, MAX_WORDS = 10, MAX_DEPTH = 4 };

static const char *folder;
static struct {
    char name[32];
    ncclComm_t comm;
} comms[MAX_COMMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ncclComm_t *slot(const char *name) {
    ncclComm_t *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_COMMS && !found; i++) {
        if (!comms[i].name[0]) snprintf(comms[i].name, sizeof comms[i].name, "%s", name);
        if (strcmp(comms[i].name, name) == 0) found = &comms[i].comm;
    }
    pthread_mutex_unlock(&lock);
    if (!found) abort();
    return found;
}

static void nap_ms(long ms) {
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Rank 0 of a communicator makes its id; the others wait for the file. */
static ncclUniqueId unique_id(const char *name, int rank) {
    char path[512], scratch[520];
    ncclUniqueId id;
    snprintf(path, sizeof path, "%s/%s.uid", folder, name);
    if (rank == 0) {
        snprintf(scratch, sizeof scratch, "%s.new", path);
        FILE *file = fopen(scratch, "w");
        if (!file || ncclGetUniqueId(&id) != ncclSuccess || fwrite(&id, sizeof id, 1, file) != 1) abort();
        fclose(file);
        rename(scratch, path);
        return id;
    }
    for (;;) {
        FILE *file = fopen(path, "r");
        size_t got = file ? fread(&id, sizeof id, 1, file) : 0;
        if (file) fclose(file);
        if (got == 1) return id;
        nap_ms(1);
    }
}

static void await_file(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    while (access(path, F_OK) != 0) nap_ms(1);
    pthread_mutex_lock(&lock); /* what another thread did before its touch is seen from here on */
    pthread_mutex_unlock(&lock);
}

static void touch(const char *name) {
    char path[512];
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file) fclose(file);
}

/* OP COMM count type redop peer-or-root stream */
static ncclResult_t communicate(char **word) {
    static const char *const ops[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "bcast", "reduce",
                                      "all_to_all", "gather",     "scatter",        "send",      "recv"};
    ncclComm_t comm = *slot(word[1]);
    size_t n = strtoul(word[2], NULL, 10), which = 0;
    int type = atoi(word[3]), op = atoi(word[4]), peer = atoi(word[5]);
    cudaStream_t stream = (cudaStream_t)(uintptr_t)atoi(word[6]);
    char data[1];
    while (strcmp(ops[which], word[0]) != 0) which++;
    switch (which) {
        case 0: return ncclAllReduce(data, data, n, type, op, comm, stream);
        case 1: return ncclAllGather(data, data, n, type, comm, stream);
        case 2: return ncclReduceScatter(data, data, n, type, op, comm, stream);
        case 3: return ncclBroadcast(data, data, n, type, peer, comm, stream);
        case 4: return ncclBcast(data, n, type, peer, comm, stream);
        case 5: return ncclReduce(data, data, n, type, op, peer, comm, stream);
        case 6: return ncclAlltoAll(data, data, n, type, comm, stream);
        case 7: return ncclGather(data, data, n, type, peer, comm, stream);
        case 8: return ncclScatter(data, data, n, type, peer, comm, stream);
        case 9: return ncclSend(data, n, type, peer, comm, stream);
        default: return ncclRecv(data, n, type, peer, comm, stream);
    }
}

static ncclResult_t shrink(const char *child, const char *parent, char *list) {
    int excluded[32], n = 0;
    for (char *rest, *item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest))
        excluded[n++] = atoi(item);
    return ncclCommShrink(*slot(parent), excluded, n, slot(child), NULL, 0);
}

/* A child that goes its own way: a communicator of its own and one call. */
static void fork_one(void) {
    pid_t pid = fork();
    if (pid == 0) {
        ncclUniqueId id;
        ncclComm_t comm;
        char data[1];
        ncclGetUniqueId(&id);
        if (ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess) _exit(9);
        _exit(ncclAllReduce(data, data, 7, 7, 0, comm, NULL) == ncclSuccess ? 0 : 9);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (status) _exit(8);
}

/* Until what was begun without blocking is there. */
static ncclResult_t finished(ncclComm_t comm, ncclResult_t result) {
    while (result == ncclInProgress) {
        nap_ms(1);
        if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) return ncclSystemError;
    }
    return result;
}

static ncclResult_t act(char **word) {
    const char *what = word[0];
    if (!strncmp(what, "init", 4) && strcmp(what, "initall") != 0) {
        ncclComm_t *comm = slot(word[1]);
        int size = atoi(word[2]), rank = atoi(word[3]);
        ncclUniqueId id = unique_id(word[1], rank);
        ncclConfig_t config = {.size = sizeof config, .magic = (unsigned)NCCL_CONFIG_MAGIC, .version = 22700};
        config.blocking = strcmp(what, "initlater") != 0;
        config.comm_name = word[1];
        if (!strcmp(what, "init")) return ncclCommInitRank(comm, size, id, rank);
        if (!strcmp(what, "initscalable")) return ncclCommInitRankScalable(comm, size, rank, 1, &id, &config);
        return finished(*comm, ncclCommInitRankConfig(comm, size, id, rank, &config));
    }
    if (!strcmp(what, "initall")) {
        ncclComm_t made[32];
        int n = atoi(word[2]);
        ncclResult_t result = ncclCommInitAll(made, n, NULL);
        for (int i = 0; i < n; i++) {
            char name[64];
            snprintf(name, sizeof name, "%s%d", word[1], i);
            *slot(name) = made[i];
        }
        return result;
    }
    if (!strcmp(what, "split")) {
        ncclComm_t parent = *slot(word[2]);
        return finished(parent, ncclCommSplit(parent, atoi(word[3]), atoi(word[4]), slot(word[1]), NULL));
    }
    if (!strcmp(what, "shrink")) return shrink(word[1], word[2], word[3]);
    if (!strcmp(what, "group")) return ncclGroupStart();
    if (!strcmp(what, "end")) return ncclGroupEnd();
    if (!strcmp(what, "simulate")) return ncclGroupSimulateEnd(NULL);
    if (!strcmp(what, "destroy")) return ncclCommDestroy(*slot(word[1]));
    if (!strcmp(what, "abort")) return ncclCommAbort(*slot(word[1]));
    if (!strcmp(what, "finalize")) return ncclCommFinalize(*slot(word[1]));
    if (!strcmp(what, "kernel")) stub_kernel((cudaStream_t)(uintptr_t)atoi(word[1]), atol(word[2]));
    else if (!strcmp(what, "sync")) stub_synchronize((cudaStream_t)(uintptr_t)atoi(word[1]));
    else if (!strcmp(what, "syncall")) cuCtxSynchronize();
    else if (!strcmp(what, "capture")) stub_capture((cudaStream_t)(uintptr_t)atoi(word[1]), atoi(word[2]));
    else if (!strcmp(what, "fork")) fork_one();
    else if (!strcmp(what, "sleep")) nap_ms(atol(word[1]));
    else if (!strcmp(what, "await")) await_file(word[1]);
    else if (!strcmp(what, "touch")) touch(word[1]);
    else if (!strcmp(what, "eventcalls")) printf("event calls: %ld\n", stub_event_calls());
    else return communicate(word);
    return ncclSuccess;
}

static void *run(void *script) {
    static const char *const blank = " \n";
    char **lines = calloc(MAX_LINES, sizeof *lines), *text = NULL;
    size_t room = 0;
    int n = 0, depth = 0;
    struct {
        int at;
        long left;
    } loops[MAX_DEPTH];
    FILE *file = fopen(script, "r");
    if (!file) _exit(7);
    while (n < MAX_LINES && getline(&text, &room, file) > 0) lines[n++] = strdup(text);
    fclose(file);
    free(text);
    for (int at = 0; at < n; at++) {
        char line[256], *rest, *word[MAX_WORDS] = {NULL};
        int words = 0, may_fail = 0;
        snprintf(line, sizeof line, "%s", lines[at]);
        for (char *item = strtok_r(line, blank, &rest); item && words < MAX_WORDS; item = strtok_r(NULL, blank, &rest))
            word[words++] = item;
        if (!words) continue;
        if (!strcmp(word[0], "repeat")) {
            loops[depth].at = at;
            loops[depth++].left = atol(word[1]);
            continue;
        }
        if (!strcmp(word[0], "again")) {
            if (--loops[depth - 1].left > 0) at = loops[depth - 1].at;
            else depth--;
            continue;
        }
        if (!strcmp(word[0], "try")) {
            may_fail = 1;
            memmove(word, word + 1, sizeof word - sizeof *word);
        }
        ncclResult_t result = act(word);
        if (result != ncclSuccess && !may_fail) {
            fprintf(stderr, "%s:%d: %s gave %d\n", (const char *)script, at + 1, word[0], result);
            _exit(3);
        }
    }
    for (int i = 0; i < n; i++) free(lines[i]);
    free(lines);
    return NULL;
}

/* FOLDER SCRIPT…; also called from a library that was loaded late and privately. */
int stub_main(int n, char **arguments);
int stub_main(int n, char **arguments) {
    pthread_t threads[16];
    folder = arguments[1];
    for (int i = 3; i < n; i++) pthread_create(&threads[i], NULL, run, arguments[i]);
    run(arguments[2]);
    for (int i = 3; i < n; i++) pthread_join(threads[i], NULL);
    return 0;
}

#ifndef STUB_LIBRARY
int main(int n, char **arguments) { return stub_main(n, arguments); }
#endif
