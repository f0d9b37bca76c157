/* The order of many times of many ranks: streams/slow/ordering.py says which, and has checked types and lengths. */

#include "ordering.h"

#include <stdlib.h>

/* Whether all ascend by rank, then time, then `then`. */
API bool order_ascends(int64_t n, const int64_t *rank, const int64_t *time, const int64_t *then)
{
    for (int64_t i = 1; i < n; i++) {
        if (rank[i] > rank[i - 1])
            continue;
        if (rank[i] < rank[i - 1] || time[i] < time[i - 1] || (time[i] == time[i - 1] && then[i] < then[i - 1]))
            return false;
    }
    return true;
}

/* `order` by rank, then time, then `then`, then place. Ranks lie in `lowest` .. `lowest + n_ranks - 1`; `ends` has room
 * for `n_ranks` numbers. A rank's entries are sorted by themselves, where they stay in a processor's cache. Returns 0,
 * or -1 where there is no memory for those of one rank. */
API int order_by(int64_t n, const int64_t *rank, const int64_t *time, const int64_t *then, int64_t lowest,
                 int64_t n_ranks, int64_t *ends, int64_t *order)
{
    int64_t most = 0;
    memset(ends, 0, sizeof *ends * (size_t)n_ranks);
    for (int64_t i = 0; i < n; i++)
        ends[rank[i] - lowest]++;
    for (int64_t one = 0, begin = 0; one < n_ranks; one++) {
        int64_t of_one = ends[one];
        most = larger_of(most, of_one);
        ends[one] = begin;
        begin += of_one;
    }
    struct entry *entries = malloc(2 * sizeof *entries * (size_t)most);
    if (!entries)
        return -1;
    for (int64_t i = 0; i < n; i++)
        order[ends[rank[i] - lowest]++] = i;
    for (int64_t one = 0, begin = 0; one < n_ranks; begin = ends[one++]) {
        int64_t of_one = ends[one] - begin;
        for (int64_t i = 0; i < of_one; i++) {
            int64_t place = order[begin + i];
            entries[i] = (struct entry){time[place], then[place], place};
        }
        const struct entry *in_order = sorted(entries, entries + most, of_one);
        for (int64_t i = 0; i < of_one; i++)
            order[begin + i] = in_order[i].place;
    }
    free(entries);
    return 0;
}
