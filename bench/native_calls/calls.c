/* Calls NCCL in a loop and prints nanoseconds: of a call, of a group of two, and of reading the clock once.
 *
 * Arguments: calls, repeats, microseconds between two calls (0: none), size, rank, and a file that is waited for, a call
 * a millisecond; then there is a pause after each repeat, in which what the calls have left behind is worked off. The
 * smallest of the repeats is printed: what else the machine did in the others is nobody's cost.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "nccl_abi.h"

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank);
ncclResult_t ncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclSend(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclRecv(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static ncclComm_t comm;
static char data[1];
static useconds_t rest_us; /* after each repeat */

static void call(void) { ncclAllReduce(data, data, 1024, 7, 0, comm, NULL); }
static void group(void) {
    ncclGroupStart();
    ncclSend(data, 1024, 7, 0, comm, NULL);
    ncclRecv(data, 1024, 7, 0, comm, NULL);
    ncclGroupEnd();
}
static void clock_read(void) { now_ns(); }

static double smallest(void (*what)(void), long calls, int repeats) {
    double best = 1e18;
    for (int i = 0; i < repeats; i++) {
        double begun = now_ns();
        for (long j = 0; j < calls; j++) what();
        double took = (now_ns() - begun) / (double)calls;
        best = took < best ? took : best;
        if (rest_us) usleep(rest_us);
    }
    return best;
}

int main(int n, char **arguments) {
    long calls = atol(arguments[1]), pause_us = n > 3 ? atol(arguments[3]) : 0;
    int size = n > 4 ? atoi(arguments[4]) : 1, rank = n > 5 ? atoi(arguments[5]) : 0;
    ncclUniqueId id = {{0}};
    ncclGetUniqueId(&id);
    ncclCommInitRank(&comm, size, id, rank);
    if (pause_us > 0) {
        double next_ns = now_ns();
        for (long i = 0; i < calls; i++) {
            next_ns += (double)pause_us * 1e3;
            call();
            struct timespec until = {(time_t)(next_ns / 1e9), (long)((long long)next_ns % 1000000000)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        }
        return 0;
    }
    for (; n > 6 && access(arguments[6], F_OK) != 0; call()) usleep(1000);
    if (n > 6) rest_us = 10000;
    printf("{\"a call\": %.2f, ", smallest(call, calls, atoi(arguments[2])));
    printf("\"a group of two calls\": %.2f, ", smallest(group, calls, atoi(arguments[2])));
    printf("\"the clock\": %.2f}\n", smallest(clock_read, calls, atoi(arguments[2])));
    return 0;
}
