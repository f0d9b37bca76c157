/* The inner loops of stage one: what is done with every row of every batch.
 *
 * A batch has a hundred rows or two, so that what it costs is the number of calls into NumPy, and not what they do.
 * Called by streams/rounds/row_loops.py with columns whose types and lengths it has checked. Every loop keeps the
 * rows' order.
 */

#include "loops.h"

/* The place of each rank, where it is asked for, -1 if it has none; returns the first row whose rank has none, or -1.
 *
 * `ascending` are the ranks that have a place, `order` where each of them stands. */
API int64_t rows_places_of(int64_t n_rows, const int32_t *ranks, const bool *is_asked, int64_t n_known,
                           const int64_t *ascending, const int64_t *order, int64_t *places)
{
    int64_t outsider = -1;
    for (int64_t i = 0; i < n_rows; i++) {
        places[i] = 0;
        if (!is_asked[i])
            continue;
        int64_t at = place_of(ascending, n_known, ranks[i]);
        bool is_known = at < n_known && ascending[at] == ranks[i];
        places[i] = is_known ? order[at] : -1;
        if (!is_known && outsider < 0)
            outsider = i;
    }
    return outsider;
}

/* Times as they can be; returns of how many rows they go backwards: their starts and ends are taken for unseen. */
API int64_t rows_without_backward_times(int64_t n_rows, const int64_t *launch, const int64_t *start, const int64_t *end,
                                        int64_t *launched, int64_t *started, int64_t *ended)
{
    int64_t n_backward = 0;
    for (int64_t i = 0; i < n_rows; i++) {
        bool is_negative = launch[i] < 0 || start[i] < 0 || end[i] < 0;
        bool is_backward = is_negative || (end[i] > 0 && (end[i] < launch[i] || end[i] < start[i]));
        n_backward += is_backward;
        launched[i] = larger_of(launch[i], 0);
        started[i] = is_backward ? 0 : start[i];
        ended[i] = is_backward ? 0 : end[i];
    }
    return n_backward;
}

/* The open rounds: a line for each, and in it a place for each member. Arrays of the caller, in C order. */
struct grid {
    int64_t width;
    const bool *closed_lines;
    bool *seen;
    int8_t *op;
    int64_t *size_bytes, *launch, *start, *end, *signature;
};

/* The rows of a batch; `is_used` is written. */
struct rows {
    const int64_t *column, *seq;
    const int8_t *op;
    const int64_t *size_bytes, *launch, *start, *end, *signature;
    bool *is_used;
};

/* Put rows into a grid whose first line is that of `base`; count how many came late, and how many came twice.
 *
 * `is_used` tells which rows are in the grid now: not those of closed lines, and of two for one place the first. */
API void rows_put(int64_t n_rows, const struct rows *rows, int64_t base, const struct grid *grid, int64_t *n_late,
                  int64_t *n_twice)
{
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t line = rows->seq[i] - base, cell = line * grid->width + rows->column[i];
        rows->is_used[i] = false;
        if (line < 0 || grid->closed_lines[line]) {
            ++*n_late;
        } else if (grid->seen[cell]) {
            ++*n_twice;
        } else {
            rows->is_used[i] = grid->seen[cell] = true;
            grid->op[line] = rows->op[i];
            grid->size_bytes[line] = larger_of(grid->size_bytes[line], rows->size_bytes[i]);
            grid->launch[cell] = rows->launch[i];
            grid->start[cell] = rows->start[i];
            grid->end[cell] = rows->end[i];
            grid->signature[cell] = rows->signature[i];
        }
    }
}
