/* What many ask of every round, found in one pass over the cells of all blocks of a step of time.
 *
 * Called by streams/rounds/round_loops.py. A block has `lengths[b]` rounds, each with a cell for each of its
 * `widths[b]` ranks; cells of all blocks lie one behind the other. Times are nanoseconds, 0 where they are not known,
 * and may be anything else.
 */

#include "loops.h"

/* Whether the blocks have as many rounds and cells as there is memory for. */
static bool adds_up(int64_t n_blocks, const int64_t *lengths, const int64_t *widths, int64_t n_rounds, int64_t n_cells)
{
    for (int64_t b = 0; b < n_blocks; b++) {
        if (lengths[b] < 0 || widths[b] < 0 || lengths[b] > n_rounds)
            return false;
        if (widths[b] > 0 && lengths[b] > n_cells / widths[b])
            return false;
        n_rounds -= lengths[b];
        n_cells -= lengths[b] * widths[b];
    }
    return n_rounds == 0 && n_cells == 0;
}

/* When a round was over: its last end, else its last arrival; 0 where nothing is known. */
static inline int64_t time_of(const int64_t *arrival, const int64_t *end, int64_t n)
{
    int64_t last_end = 0, last_arrival = 0;
    for (int64_t i = 0; i < n; i++) {
        last_end = larger_of(last_end, end[i]);
        last_arrival = larger_of(last_arrival, arrival[i]);
    }
    return last_end > 0 ? last_end : last_arrival;
}

/* The event time of each round. Returns 0, or -1 where the blocks do not add up. */
API int rounds_times(int64_t n_blocks, const int64_t *lengths, const int64_t *widths, int64_t n_rounds,
                     int64_t n_cells, const int64_t *arrival, const int64_t *end, int64_t *times_ns)
{
    if (!adds_up(n_blocks, lengths, widths, n_rounds, n_cells))
        return -1;
    for (int64_t b = 0; b < n_blocks; b++)
        for (int64_t line = 0; line < lengths[b]; line++, arrival += widths[b], end += widths[b])
            *times_ns++ = time_of(arrival, end, widths[b]);
    return 0;
}

/* Of each round its event time, by how many of its ranks a start and an end is known, the longest and the shortest of
 * their durations (0 and INT64_MAX where there is none), and how long the transfer took: 0 where that is not known.
 *
 * `ends_for_all[op]`: nobody can leave such an operation before the last one has come.
 *
 * Returns 0, or -1 where the blocks do not add up or there is no such operation. */
API int rounds_measure(int64_t n_blocks, const int64_t *lengths, const int64_t *widths, int64_t n_rounds,
                       int64_t n_cells, const int64_t *arrival, const int64_t *start, const int64_t *end,
                       const int8_t *op, const bool *ends_for_all, int64_t n_ops, int64_t *times_ns, int64_t *n_seen,
                       int64_t *longest_ns, int64_t *shortest_ns, int64_t *transfer_ns)
{
    if (!adds_up(n_blocks, lengths, widths, n_rounds, n_cells))
        return -1;
    int64_t number = 0;
    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t n = widths[b];
        for (int64_t line = 0; line < lengths[b]; line++, number++, arrival += n, start += n, end += n) {
            if (op[number] < 0 || op[number] >= n_ops)
                return -1;
            int64_t seen = 0, longest = n > 0 ? INT64_MIN : 0, shortest = INT64_MAX;
            int64_t least = INT64_MAX, last_start = INT64_MIN, last_end = INT64_MIN;
            bool all_started = true, any_ended = false;
            for (int64_t i = 0; i < n; i++) {
                int64_t begun = start[i] > 0 ? start[i] : arrival[i];
                bool is_seen = end[i] > 0 && begun > 0;
                longest = larger_of(longest, is_seen ? minus(end[i], begun) : 0);
                shortest = is_seen ? smaller_of(shortest, minus(end[i], begun)) : shortest;
                seen += is_seen;
                all_started = all_started && start[i] > 0;
                any_ended = any_ended || end[i] > 0;
                least = end[i] > 0 ? smaller_of(least, minus(end[i], start[i])) : least;
                last_start = larger_of(last_start, start[i]);
                last_end = larger_of(last_end, end[i]);
            }
            /* Where all wait for the last one, it is the one that waits the least: its duration is on one clock. */
            int64_t transfer = ends_for_all[op[number]] ? least : minus(last_end, last_start);
            times_ns[number] = time_of(arrival, end, n);
            n_seen[number] = seen;
            longest_ns[number] = longest;
            shortest_ns[number] = shortest;
            transfer_ns[number] = n > 0 && all_started && any_ended ? larger_of(transfer, 0) : 0;
        }
    }
    return 0;
}

/* Values of blocks, each of `size` bytes: those of block `order[b]` lie from `begins` to `ends` of it in `from`, and are
 * put one block behind the other. */
API void rounds_in_order_of_blocks(int64_t n_blocks, const int64_t *order, const int64_t *begins, const int64_t *ends,
                                   int64_t size, const char *from, char *into)
{
    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t begin = begins[order[b]] * size, n = ends[order[b]] * size - begin;
        memcpy(into, from + begin, (size_t)n);
        into += n;
    }
}
