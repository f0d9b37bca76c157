/* The inner loops of the critical path: what one iteration asks of all rounds that are kept.
 *
 * Called by streams/slow/path_walk.py with arrays whose types and lengths it has checked. Arrays of entries are sorted
 * by (rank, start), or by (rank, end) for the path; ranks of a stretch ascend, `begins_ns` and `ends_ns` have their
 * shape. What a loop finds it adds to the arrays that are given for it.
 */

#include "loops.h"

#include <stdlib.h>

/* Take from each rank's time what its counting entries cover, each moment once. */
API void path_subtract_calls(int64_t n, const int64_t *rank, const int64_t *start, const int64_t *end,
                             const bool *counts, int64_t n_ranks, const int64_t *ranks, const int64_t *begins_ns,
                             const int64_t *ends_ns, int64_t *own_ns)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n_ranks; i++) {
        while (at < n && rank[at] < ranks[i])
            at++;
        int64_t begin = begins_ns[i], finish = ends_ns[i], covered = begin;
        for (; at < n && rank[at] == ranks[i]; at++)
            if (counts[at] && begin < end[at] && end[at] <= finish) {
                own_ns[i] -= larger_of(end[at] - larger_of(start[at], covered), 0);
                covered = larger_of(covered, end[at]);
            }
    }
}

/* What the walk goes back over: entries by (rank, end), and of each round its key and who came last to it; a rank and a
 * time of its own that say when it was, and how many bytes it has moved. */
struct path {
    int64_t n, n_rounds;
    const int64_t *rank, *end, *round;
    const int64_t *round_key, *last_rank, *last_start, *transfer_ns, *anchor_rank, *anchor, *size_bytes;
};

/* Charge an iteration, from `now_ns` on `rank` backwards, to ranks and to the keys of rounds.
 *
 * Returns 0, or -1 where there is no memory. */
API int path_walk_back(int64_t rank, int64_t now_ns, const struct path *path, int64_t n_ranks, const int64_t *ranks,
                       const int64_t *begins_ns, int64_t *ranks_ns, int64_t *keys_ns)
{
    /* Entries of a rank from `passed` on have been passed: the walk ends. */
    int64_t *passed = malloc(sizeof *passed * (size_t)(n_ranks + 1));
    if (passed == NULL)
        return -1;
    for (int64_t i = 0; i < n_ranks; i++)
        passed[i] = path->n;
    for (;;) {
        int64_t i = place_of(ranks, n_ranks, rank);
        if (i == n_ranks || ranks[i] != rank)
            break;
        int64_t low = place_of(path->rank, path->n, rank), high = place_after(path->rank, path->n, rank);
        int64_t ended = place_after(path->end + low, high - low, now_ns);
        int64_t place = smaller_of(low + ended, passed[i]) - 1;
        if (place < low || path->end[place] <= begins_ns[i]) {
            ranks_ns[i] += larger_of(now_ns - begins_ns[i], 0);
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
API void path_sum_transfers(const struct path *path, int64_t n_ranks, const int64_t *ranks, const int64_t *begins_ns,
                            const int64_t *ends_ns, double *total_ns, int64_t *n_rounds, int64_t *size_bytes)
{
    uint64_t size = 0;
    int64_t n_inside = 0;
    for (int64_t i = 0; i < path->n_rounds; i++) {
        if (!is_inside(path->anchor_rank[i], path->anchor[i], n_ranks, ranks, begins_ns, ends_ns))
            continue;
        total_ns[path->round_key[i]] += (double)path->transfer_ns[i];
        size += (uint64_t)path->size_bytes[i];
        n_inside++;
    }
    *n_rounds = n_inside;
    *size_bytes = (int64_t)size;
}
