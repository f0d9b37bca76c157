/* The inner loops of the critical path: what one iteration asks of all rounds that are kept.
 *
 * Called by streams/slow/path_walk.py with arrays whose types and lengths it has checked. Ranks of a stretch ascend,
 * `begins_ns` and `ends_ns` have their shape. What a loop finds it adds to the arrays that are given for it.
 */

#include "loops.h"

#include <stdlib.h>

/* All rounds that are kept: the calls of each rank by (rank, start), of which those of `counts` are none of its own
 * time, and those of `waited` (no array: the same ones) were waited for; how late the calls of a rank up to each had
 * ended; the calls that a walk goes back over, by (rank, end); and of each round its key and who came last to it, a rank
 * and a time of its own that say when it was, and how many bytes it has moved. */
struct path {
    int64_t n_calls, n, n_rounds, n_keys;
    const int64_t *call_rank, *call_start, *call_end, *reach;
    const bool *counts, *waited;
    const int64_t *rank, *end, *round;
    const int64_t *round_key, *last_rank, *last_start, *transfer_ns, *anchor_rank, *anchor, *size_bytes;
};

/* The part of all rounds that an iteration asks for. */
struct stretch {
    int64_t n_ranks;
    const int64_t *ranks, *begins_ns, *ends_ns;
};

/* How late the calls of a rank had ended, up to each. */
API void path_reach(int64_t n, const int64_t *rank, const int64_t *end, int64_t *reach)
{
    for (int64_t at = 0; at < n; at++)
        reach[at] = at > 0 && rank[at - 1] == rank[at] ? larger_of(reach[at - 1], end[at]) : end[at];
}

/* What of a rank's iteration its calls from `at` on leave, each moment taken once. */
static int64_t uncovered_ns(const struct path *path, const bool *counts, int64_t at, int64_t high, int64_t begin,
                            int64_t finish)
{
    int64_t own_ns = minus(finish, begin), covered = begin;
    const int64_t *start = path->call_start, *end = path->call_end;
    /* What starts behind the iteration ends there, or is nonsense that takes nothing. */
    for (; at < high && start[at] <= finish; at++)
        if (counts[at] && begin < end[at] && end[at] <= finish) {
            own_ns -= larger_of(end[at] - larger_of(start[at], covered), 0);
            covered = larger_of(covered, end[at]);
        }
    return own_ns;
}

/* Each rank's own time: what no call covers that it may have waited in, and what none covers that it did wait in. */
static void measure_own(const struct path *path, const struct stretch *of, int64_t *least_ns, int64_t *most_ns)
{
    int64_t low = 0;
    for (int64_t i = 0; i < of->n_ranks; i++) {
        low += place_of(path->call_rank + low, path->n_calls - low, of->ranks[i]);
        int64_t n = place_after(path->call_rank + low, path->n_calls - low, of->ranks[i]);
        int64_t begin = of->begins_ns[i], finish = of->ends_ns[i];
        int64_t at = low + place_after(path->reach + low, n, begin); /* all before had ended by then */
        least_ns[i] = uncovered_ns(path, path->counts, at, low + n, begin, finish);
        if (path->waited != NULL)
            most_ns[i] = uncovered_ns(path, path->waited, at, low + n, begin, finish);
        low += n;
    }
}

/* Charge an iteration, from `now_ns` on `rank` backwards, to ranks and to the keys of rounds.
 *
 * Returns 0, or -1 where there is no memory. */
static int walk_back(const struct path *path, const struct stretch *of, int64_t rank, int64_t now_ns,
                     int64_t *ranks_ns, int64_t *keys_ns)
{
    /* Entries of a rank from `passed` on have been passed: the walk ends. */
    int64_t *passed = malloc(sizeof *passed * (size_t)(of->n_ranks + 1));
    if (passed == NULL)
        return -1;
    for (int64_t i = 0; i < of->n_ranks; i++)
        passed[i] = path->n;
    for (;;) {
        int64_t i = place_of(of->ranks, of->n_ranks, rank);
        if (i == of->n_ranks || of->ranks[i] != rank)
            break;
        int64_t low = place_of(path->rank, path->n, rank), high = place_after(path->rank, path->n, rank);
        int64_t ended = place_after(path->end + low, high - low, now_ns);
        int64_t place = smaller_of(low + ended, passed[i]) - 1;
        if (place < low || path->end[place] <= of->begins_ns[i]) {
            ranks_ns[i] += larger_of(now_ns - of->begins_ns[i], 0);
            break;
        }
        passed[i] = place;
        ranks_ns[i] += larger_of(now_ns - path->end[place], 0);
        int64_t number = path->round[place];
        keys_ns[path->round_key[number]] += larger_of(path->transfer_ns[number], 0);
        rank = path->last_rank[number];
        now_ns = path->last_start[number];
    }
    free(passed);
    return 0;
}

/* Whether a time of a rank lies in the stretch: after the rank's begin, and not after its end. */
static inline bool is_inside(int64_t rank, int64_t time_ns, int64_t n_ranks, const int64_t *ranks,
                             const int64_t *begins_ns, const int64_t *ends_ns)
{
    /* Most often all ranks take part, so that a rank is its own place. */
    int64_t i = rank >= 0 && rank < n_ranks && ranks[rank] == rank ? rank : place_of(ranks, n_ranks, rank);
    return i < n_ranks && ranks[i] == rank && begins_ns[i] < time_ns && time_ns <= ends_ns[i];
}

/* Which (rank, time) lie in the stretch. */
API void path_find_inside(int64_t n, const int64_t *rank, const int64_t *time_ns, int64_t n_ranks,
                          const int64_t *ranks, const int64_t *begins_ns, const int64_t *ends_ns, bool *inside)
{
    for (int64_t at = 0; at < n; at++)
        inside[at] = is_inside(rank[at], time_ns[at], n_ranks, ranks, begins_ns, ends_ns);
}

/* The rounds whose anchor lies in the stretch: their transfer times by key, in order; how many they are, and bytes. */
static void sum_transfers(const struct path *path, const struct stretch *of, double *total_ns, int64_t *n_rounds,
                          int64_t *size_bytes)
{
    int64_t first_ns = INT64_MAX, last_ns = INT64_MIN;
    for (int64_t i = 0; i < of->n_ranks; i++) {
        first_ns = smaller_of(first_ns, of->begins_ns[i]);
        last_ns = larger_of(last_ns, of->ends_ns[i]);
    }
    uint64_t size = 0;
    int64_t n_inside = 0;
    for (int64_t i = 0; i < path->n_rounds; i++) {
        if (path->anchor[i] <= first_ns || path->anchor[i] > last_ns) /* of another iteration, as most of them */
            continue;
        if (!is_inside(path->anchor_rank[i], path->anchor[i], of->n_ranks, of->ranks, of->begins_ns, of->ends_ns))
            continue;
        total_ns[path->round_key[i]] += (double)path->transfer_ns[i];
        size += (uint64_t)path->size_bytes[i];
        n_inside++;
    }
    *n_rounds = n_inside;
    *size_bytes = (int64_t)size;
}

/* All that is asked of `n` iterations of the same ranks, of which number i ended last on `last_ranks[i]`, at `last_ns[i]`.
 *
 * `begins_ns` and `ends_ns` have a line of ranks for each. `of_ranks` has room for three lines each: a rank's own time, the
 * most it may be, and what it is charged with; `of_keys` for one of keys, and for how many rounds there were and how many
 * bytes they moved; `transfers_ns` for one of keys.
 *
 * Returns 0, or -1 where there is no memory. */
API int path_measure(const struct path *path, int64_t n, int64_t n_ranks, const int64_t *ranks,
                     const int64_t *begins_ns, const int64_t *ends_ns, const int64_t *last_ranks,
                     const int64_t *last_ns, int64_t *of_ranks, int64_t *of_keys, double *transfers_ns)
{
    int failed = 0;
    for (int64_t i = 0; i < n && !failed; i++) {
        const struct stretch of = {n_ranks, ranks, begins_ns + i * n_ranks, ends_ns + i * n_ranks};
        int64_t *own_ns = of_ranks + 3 * i * n_ranks, *keys = of_keys + i * (path->n_keys + 2);
        measure_own(path, &of, own_ns, own_ns + n_ranks);
        sum_transfers(path, &of, transfers_ns + i * path->n_keys, keys + path->n_keys, keys + path->n_keys + 1);
        failed = walk_back(path, &of, last_ranks[i], last_ns[i], own_ns + 2 * n_ranks, keys);
    }
    return failed;
}
