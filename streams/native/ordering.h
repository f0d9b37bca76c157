/* Sorting the calls of one rank, which ascend already in as many runs as it has communicators. */

#ifndef PACEHOUND_ORDERING_H
#define PACEHOUND_ORDERING_H

#include "loops.h"

struct entry {
    int64_t time, then, place;
};

static inline bool is_before(const struct entry *a, const struct entry *b)
{
    return a->time < b->time || (a->time == b->time && a->then < b->then);
}

/* Behind the last of those that ascend from `begin` on. */
static inline int64_t end_of_run(const struct entry *of, int64_t begin, int64_t n)
{
    int64_t at = begin + 1;
    while (at < n && !is_before(&of[at], &of[at - 1]))
        at++;
    return at < n ? at : n;
}

static inline void merge(const struct entry *from, int64_t begin, int64_t middle, int64_t end, struct entry *to)
{
    int64_t left = begin, right = middle, at = begin;
    while (left < middle && right < end)
        to[at++] = is_before(&from[right], &from[left]) ? from[right++] : from[left++];
    memcpy(&to[at], &from[left], sizeof *to * (size_t)(middle - left));
    memcpy(&to[at + middle - left], &from[right], sizeof *to * (size_t)(end - right));
}

/* `n` entries by time, then `then`, then as they lie: each pass merges two and two runs. They and `spare` have room for
 * `n`; where they are in the end is returned. */
static inline struct entry *sorted(struct entry *of, struct entry *spare, int64_t n)
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
    return from;
}

#endif
