/* When each step of a job ends, by the longest path through its graph: streams/whatif/longest.py in C.
 *
 * Called from Python with arrays whose types and shapes it has checked; float64 and float32 durations.
 */

#include "loops.h"

#include <stdlib.h>

enum { IDEAL = 0, KEPT = 1 };
enum { BLOCK_LANES = 256 };

/* `Graph` of streams/whatif/graph.py; the arrays belong to the caller. */
struct graph {
    const int64_t *member_bounds, *members, *wait_bounds, *waits, *own_bounds, *own_waits;
    const uint8_t *over_dp;
    const int64_t *slot;
    const uint8_t *is_last, *is_optimizer;
    int64_t n_nodes, n_slots;
};

/* The latest of the ends that a node waits for; 0 where there is none. */
static void latest_of_waits(double *begin, const double *ends, int64_t width, const struct graph *graph, int64_t node,
                            int64_t n)
{
    int64_t first = graph->wait_bounds[node], last = graph->wait_bounds[node + 1];
    if (first == last) {
        memset(begin, 0, sizeof *begin * (size_t)n);
        return;
    }
    memcpy(begin, ends + graph->slot[graph->waits[first]] * width, sizeof *begin * (size_t)n);
    for (int64_t at = first + 1; at < last; at++) {
        const double *more = ends + graph->slot[graph->waits[at]] * width;
        for (int64_t i = 0; i < n; i++)
            begin[i] = begin[i] > more[i] ? begin[i] : more[i];
    }
}

static void plus_ideal(double *out, const double *begin, double ideal_s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = begin[i] + ideal_s;
}

static void keep_latest(double *into, const double *ends, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        into[i] = into[i] > ends[i] ? into[i] : ends[i];
}

static double largest(const double *values, int64_t n)
{
    double found = values[0];
    for (int64_t i = 1; i < n; i++)
        found = values[i] > found ? values[i] : found;
    return found;
}

#define REAL double
#define NAMED(name) name##_float64
#include "longest_of.h"
#undef REAL
#undef NAMED
#define REAL float
#define NAMED(name) name##_float32
#include "longest_of.h"
