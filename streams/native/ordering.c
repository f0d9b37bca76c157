/* The order of many times of many ranks: streams/slow/ordering.py says which, and has checked types and lengths. */

#include "loops.h"

struct entry {
    int64_t time, then, place;
};

static inline bool is_before(const struct entry *a, const struct entry *b)
{
    return a->time < b->time || (a->time == b->time && a->then < b->then);
}

/* Behind the last of those that ascend from `begin` on. */
static int64_t end_of_run(const struct entry *of, int64_t begin, int64_t n)
{
    int64_t at = begin + 1;
    while (at < n && !is_before(&of[at], &of[at - 1]))
        at++;
    return at < n ? at : n;
}

static void merge(const struct entry *from, int64_t begin, int64_t middle, int64_t end, struct entry *to)
{
    int64_t left = begin, right = middle, at = begin;
    while (left < middle && right < end)
        to[at++] = is_before(&from[right], &from[left]) ? from[right++] : from[left++];
    memcpy(&to[at], &from[left], sizeof *to * (size_t)(middle - left));
    memcpy(&to[at + middle - left], &from[right], sizeof *to * (size_t)(end - right));
}

/* Calls of a communicator ascend already, so that a rank's are as many runs as it has communicators: each pass merges
 * two and two of them. */
static void sort(struct entry *of, struct entry *spare, int64_t n)
{
    struct entry *from = of, *to = spare;
    while (end_of_run(from, 0, n) < n) {
        for (int64_t begin = 0, end; begin < n; begin = end) {
            int64_t middle = end_of_run(from, begin, n);
            end = middle < n ? end_of_run(from, middle, n) : n;
            merge(from, begin, middle, end, to);
        }
        struct entry *merged = to;
        to = from;
        from = merged;
    }
    if (from != of)
        memcpy(of, from, sizeof *of * (size_t)n);
}

/* `order` by rank, then time, then `then`, then place. Ranks lie in `lowest` .. `lowest + n_ranks - 1`; `ends` has room
 * for `n_ranks` numbers, `entries` for two entries of each. */
API void order_by(int64_t n, const int64_t *rank, const int64_t *time, const int64_t *then, int64_t lowest,
                  int64_t n_ranks, int64_t *ends, struct entry *entries, int64_t *order)
{
    memset(ends, 0, sizeof *ends * (size_t)n_ranks);
    for (int64_t i = 0; i < n; i++)
        ends[rank[i] - lowest]++;
    for (int64_t one = 0, begin = 0; one < n_ranks; one++) {
        int64_t of_one = ends[one];
        ends[one] = begin;
        begin += of_one;
    }
    for (int64_t i = 0; i < n; i++)
        entries[ends[rank[i] - lowest]++] = (struct entry){time[i], then[i], i};
    for (int64_t one = 0, begin = 0; one < n_ranks; begin = ends[one++])
        sort(&entries[begin], &entries[n + begin], ends[one] - begin);
    for (int64_t i = 0; i < n; i++)
        order[i] = entries[i].place;
}
