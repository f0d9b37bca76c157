/* The inner loops of stage one: what is done with every row of every batch, and with every open round.
 *
 * A part has a hundred rows or two, so that what it costs is the number of calls into NumPy and from Python, and not
 * what they do. Called by streams/rounds/row_loops.py with columns whose types and lengths it has checked. Every loop
 * keeps the rows' order.
 */

#include "loops.h"

#include <math.h>
#include <stdlib.h>

/* The `direction` of a row whose rank sends to its peer (pacehound/model/codes.py). */
static const int8_t SEND = 1;

/* The rows of a host's flush, one part (those of a communicator) behind the other. `direction` is NULL where all of
 * them are collectives, `is_backward` where no row has times that go backwards, and the last three where no row has a
 * rate or an algorithm. `place` is written: see rows_look. */
struct rows {
    const int32_t *rank, *peer;
    const int8_t *direction;
    const int64_t *seq;
    const int8_t *op;
    const int64_t *size_bytes, *launch, *start, *end, *signature;
    const bool *is_backward;
    int64_t *place;
    const double *send_rate, *recv_rate;
    const int8_t *algorithm;
};

/* The ranks that have a place, ascending, and where each of them stands. */
struct members {
    int64_t n;
    const int64_t *ascending, *order;
};

/* The lowest and the highest sequence number of some rows; of none, the lowest is the higher one. */
struct span {
    int64_t lowest, highest;
};

static const struct span OF_NONE = {INT64_MAX, INT64_MIN};

static inline void widen(struct span *span, int64_t seq)
{
    span->lowest = smaller_of(span->lowest, seq);
    span->highest = larger_of(span->highest, seq);
}

/* What there is among some rows: the first whose rank, and the first between two ranks whose peer, is no member, or
 * -1; how many are between two ranks, of how many the times went backwards, of how many a rate or the algorithm is
 * known; and their sequence numbers. */
struct look {
    int64_t outsider, outside_peer, n_pairs, n_backward, n_transfers;
    struct span seq;
};

static inline int64_t member(const struct members *known, int64_t rank)
{
    int64_t at = place_of(known->ascending, known->n, rank);
    return at < known->n && known->ascending[at] == rank ? known->order[at] : -1;
}

/* Write the place of the rank of each row from `first` to before `after`, and tell what there is among them. */
API void rows_look(int64_t first, int64_t after, const struct rows *rows, const struct members *known,
                   struct look *found)
{
    *found = (struct look){-1, -1, 0, 0, 0, OF_NONE};
    for (int64_t i = first; i < after; i++) {
        widen(&found->seq, rows->seq[i]);
        if (rows->algorithm)
            found->n_transfers +=
                rows->algorithm[i] || is_known_at(rows->send_rate, i) || is_known_at(rows->recv_rate, i);
        rows->place[i] = member(known, rows->rank[i]);
        if (rows->place[i] < 0 && found->outsider < 0)
            found->outsider = i;
        if (rows->is_backward && rows->is_backward[i])
            found->n_backward++;
        if (!rows->direction || !rows->direction[i])
            continue;
        found->n_pairs++;
        if (found->outside_peer < 0 && member(known, rows->peer[i]) < 0)
            found->outside_peer = i;
    }
}

/* A row between two ranks. */
struct pair_row {
    int32_t sender, receiver;
    int64_t row;
};

/* Sender and receiver, where their rows end in an index, and the sequence numbers of these. */
struct pair {
    int64_t sender, receiver, after;
    struct span seq;
};

static int by_pair(const void *left, const void *right)
{
    const struct pair_row *a = left, *b = right;
    if (a->sender != b->sender)
        return a->sender < b->sender ? -1 : 1;
    if (a->receiver != b->receiver)
        return a->receiver < b->receiver ? -1 : 1;
    return a->row < b->row ? -1 : 1;
}

/* Part the rows from `first` to before `after` by whom they are between: `index` gets collectives in order, and behind
 * them the rows of each pair, in order of sender and receiver and within a pair as they were. `pairs` gets a line for
 * each pair. Both and `room` have space for that many rows. Returns how many are collectives, and writes their sequence
 * numbers and how many pairs there are. */
API int64_t rows_part(int64_t first, int64_t after, const struct rows *rows, struct pair_row *room, int64_t *index,
                      struct pair *pairs, struct span *of_collectives, int64_t *n_pairs)
{
    int64_t n_collectives = 0, n = 0;
    *of_collectives = OF_NONE;
    *n_pairs = 0;
    for (int64_t i = first; i < after; i++) {
        if (!rows->direction || !rows->direction[i]) {
            index[n_collectives++] = i;
            widen(of_collectives, rows->seq[i]);
            continue;
        }
        bool sends = rows->direction[i] == SEND;
        room[n++] = (struct pair_row){sends ? rows->rank[i] : rows->peer[i], sends ? rows->peer[i] : rows->rank[i], i};
    }
    qsort(room, (size_t)n, sizeof(*room), by_pair);
    int64_t *at = index + n_collectives;
    for (int64_t i = 0; i < n; i++) {
        struct pair *pair = pairs + *n_pairs;
        if (!i || room[i].sender != room[i - 1].sender || room[i].receiver != room[i - 1].receiver)
            *pair = (struct pair){room[i].sender, room[i].receiver, 0, OF_NONE};
        at[i] = room[i].row;
        widen(&pair->seq, rows->seq[at[i]]);
        if (i == n - 1 || room[i].sender != room[i + 1].sender || room[i].receiver != room[i + 1].receiver) {
            pair->after = n_collectives + i + 1;
            (*n_pairs)++;
        }
    }
    return n_collectives;
}

/* Some rows: those that `index` names, or, where it is NULL, `n` from `first` on. */
struct some {
    int64_t first, n;
    const int64_t *index;
};

static inline int64_t row_of(const struct some *some, int64_t i)
{
    return some->index ? some->index[i] : some->first + i;
}

/* The open rounds: a line for each, and in it a place for each member. Arrays of the caller, in C order; the last three
 * are NULL as long as no row has had a rate or an algorithm. */
struct grid {
    int64_t width;
    bool *closed_lines, *seen;
    int8_t *op;
    int64_t *size_bytes, *launch, *start, *end, *signature;
    double *send_rate, *recv_rate;
    int8_t *algorithm;
};

/* Put rows into a grid whose first line is that of `base`; no line lies behind its last. Counted are those that came
 * late, and twice: rows of closed lines are not taken, and of two for one place the first one is.
 *
 * In the grid of a pair the sender has the first place and the receiver the second, and they need not agree on what
 * they call. Rates and algorithms are put where `has_transfers`; then both rows and grid have them. */
static void put(const struct some *some, const struct rows *rows, bool is_pair, bool has_transfers, int64_t base,
                const struct grid *grid, int64_t *n_late, int64_t *n_twice)
{
    for (int64_t i = 0; i < some->n; i++) {
        int64_t at = row_of(some, i), line = rows->seq[at] - base;
        int64_t place = is_pair ? rows->direction[at] != SEND : rows->place[at];
        int64_t cell = line * grid->width + place;
        if (line < 0 || grid->closed_lines[line]) {
            ++*n_late;
            continue;
        }
        if (grid->seen[cell]) {
            ++*n_twice;
            continue;
        }
        grid->seen[cell] = true;
        grid->op[line] = rows->op[at];
        grid->size_bytes[line] = larger_of(grid->size_bytes[line], rows->size_bytes[at]);
        grid->launch[cell] = rows->launch[at];
        grid->start[cell] = rows->start[at];
        grid->end[cell] = rows->end[at];
        grid->signature[cell] = is_pair ? 0 : rows->signature[at];
        if (has_transfers) {
            grid->send_rate[cell] = rows->send_rate[at];
            grid->recv_rate[cell] = rows->recv_rate[at];
            grid->algorithm[line] = rows->algorithm[at];
        }
    }
}

/* The rows of all members. */
API void rows_put(const struct some *some, const struct rows *rows, bool has_transfers, int64_t base,
                  const struct grid *grid, int64_t *n_late, int64_t *n_twice)
{
    put(some, rows, false, has_transfers, base, grid, n_late, n_twice);
}

/* The rows of pairs (rows_part), of which `begin` is the first in `index`, each into the grid of its pair. */
API void rows_put_pairs(const struct rows *rows, bool has_transfers, const int64_t *index, int64_t begin,
                        const struct pair *pairs, int64_t n_pairs, const int64_t *bases,
                        const struct grid *const *grids, int64_t *n_late, int64_t *n_twice)
{
    for (int64_t i = 0; i < n_pairs; i++) {
        struct some some = {0, pairs[i].after - begin, index + begin};
        put(&some, rows, true, has_transfers, bases[i], grids[i], n_late + i, n_twice + i);
        begin = pairs[i].after;
    }
}

/* Write which of the first `n_lines` are complete and not closed; returns how many. */
static int64_t grid_complete(const struct grid *grid, int64_t n_lines, int64_t *lines)
{
    int64_t n = 0;
    for (int64_t line = 0; line < n_lines; line++) {
        if (!grid->closed_lines[line] && !memchr(grid->seen + line * grid->width, false, (size_t)grid->width))
            lines[n++] = line;
    }
    return n;
}

/* Who may still send a row: `is_running` is NULL where nobody is; from its number in `from_seq` on. */
struct awaited {
    const bool *is_running;
    const int64_t *from_seq;
};

static bool is_awaited(const struct awaited *awaited, const struct grid *grid, int64_t line, int64_t base)
{
    if (!awaited->is_running)
        return false;
    const bool *seen = grid->seen + line * grid->width;
    for (int64_t place = 0; place < grid->width; place++) {
        if (!seen[place] && awaited->is_running[place] && base + line >= awaited->from_seq[place])
            return true;
    }
    return false;
}

/* Write which of the first `n_lines` are overdue and not closed: a member entered them, or a later one, before
 * `before_ns`, and no row of them is awaited. Those of which a row has come are in `lines`, ascending, and the others
 * in `unseen`; returns how many of the first, and writes how many of the others. */
API int64_t grid_overdue(const struct grid *grid, int64_t n_lines, int64_t before_ns, int64_t base,
                         const struct awaited *awaited, int64_t *lines, int64_t *unseen, int64_t *n_unseen)
{
    int64_t n = 0, entered_ns = INT64_MAX;
    *n_unseen = 0;
    for (int64_t line = n_lines - 1; line >= 0; line--) {
        bool has_rows = false;
        for (int64_t cell = line * grid->width; cell < (line + 1) * grid->width; cell++) {
            if (!grid->seen[cell])
                continue;
            has_rows = true;
            entered_ns = smaller_of(entered_ns, larger_of(grid->launch[cell], 1));
        }
        if (entered_ns >= before_ns || grid->closed_lines[line] || is_awaited(awaited, grid, line, base))
            continue;
        if (has_rows)
            lines[n++] = line;
        else
            unseen[(*n_unseen)++] = line;
    }
    for (int64_t i = 0; i < n / 2; i++) {
        int64_t line = lines[i];
        lines[i] = lines[n - 1 - i];
        lines[n - 1 - i] = line;
    }
    return n;
}

/* Where rounds go that leave a grid: a value of each line, and of each line and place; the last three are NULL where
 * the grid's are (of several grids: where those of all are). */
struct rounds {
    int64_t *seq;
    int8_t *op;
    int64_t *size_bytes, *launch, *start, *end, *signature;
    double *send_rate, *recv_rate;
    int8_t *algorithm;
};

/* Copy lines out of a grid and close them; returns how many of their places no row has come for, and tells whether
 * two signatures of one line differ. */
API int64_t grid_take(const struct grid *grid, const int64_t *lines, int64_t n, int64_t base,
                      const struct rounds *rounds, bool *differ)
{
    const size_t width = (size_t)grid->width, bytes = width * sizeof(int64_t);
    int64_t n_missing = 0;
    *differ = false;
    for (int64_t i = 0; i < n; i++) {
        const size_t from = (size_t)lines[i] * width, to = (size_t)i * width;
        rounds->seq[i] = base + lines[i];
        rounds->op[i] = grid->op[lines[i]];
        rounds->size_bytes[i] = grid->size_bytes[lines[i]];
        memcpy(rounds->launch + to, grid->launch + from, bytes);
        memcpy(rounds->start + to, grid->start + from, bytes);
        memcpy(rounds->end + to, grid->end + from, bytes);
        memcpy(rounds->signature + to, grid->signature + from, bytes);
        if (grid->algorithm) {
            memcpy(rounds->send_rate + to, grid->send_rate + from, bytes);
            memcpy(rounds->recv_rate + to, grid->recv_rate + from, bytes);
            rounds->algorithm[i] = grid->algorithm[lines[i]];
        } else if (rounds->algorithm) {
            rounds->algorithm[i] = 0;
            for (size_t place = 0; place < width; place++)
                rounds->send_rate[to + place] = rounds->recv_rate[to + place] = NAN;
        }
        for (size_t place = 0; place < width; place++) {
            n_missing += !grid->seen[from + place];
            *differ |= grid->signature[from + place] != grid->signature[from];
        }
        grid->closed_lines[lines[i]] = true;
    }
    return n_missing;
}

static void drop_items(void *array, int64_t n_dropped, int64_t n_kept, size_t bytes)
{
    char *begin = array;
    memmove(begin, begin + (size_t)n_dropped * bytes, (size_t)n_kept * bytes);
    memset(begin + (size_t)n_kept * bytes, 0, (size_t)n_dropped * bytes);
}

static void drop_rates(double *rates, int64_t n_dropped, int64_t n_kept, size_t width)
{
    drop_items(rates, n_dropped, n_kept, width * sizeof(double));
    for (size_t i = (size_t)n_kept * width; i < (size_t)(n_kept + n_dropped) * width; i++)
        rates[i] = NAN;
}

/* Drop the closed lines at the head of the first `n_lines`, so that the first open one is the first; returns how many
 * they were. What is free behind the last line is zero, or no number. */
API int64_t grid_drop_head(const struct grid *grid, int64_t n_lines)
{
    const bool *open = memchr(grid->closed_lines, false, (size_t)n_lines);
    int64_t head = n_lines && open ? open - grid->closed_lines : n_lines, keep = n_lines - head;
    if (!head)
        return 0;
    const size_t width = (size_t)grid->width;
    drop_items(grid->closed_lines, head, keep, sizeof(bool));
    drop_items(grid->seen, head, keep, width * sizeof(bool));
    drop_items(grid->op, head, keep, sizeof(int8_t));
    drop_items(grid->size_bytes, head, keep, sizeof(int64_t));
    drop_items(grid->launch, head, keep, width * sizeof(int64_t));
    drop_items(grid->start, head, keep, width * sizeof(int64_t));
    drop_items(grid->end, head, keep, width * sizeof(int64_t));
    drop_items(grid->signature, head, keep, width * sizeof(int64_t));
    if (grid->algorithm) {
        drop_items(grid->algorithm, head, keep, sizeof(int8_t));
        drop_rates(grid->send_rate, head, keep, width);
        drop_rates(grid->recv_rate, head, keep, width);
    }
    return head;
}

/* Copy the lines of grids of one width out that are complete and not closed, those of each behind those of the one before,
 * close them, and drop what is closed at the heads; `rounds` has room for all `n_lines`, and `lines` for those of any grid.
 * Returns how many they are; writes how many of each grid they are and were dropped, and whether signatures differ. */
API int64_t grids_close_complete(int64_t n_grids, const struct grid *const *grids, const int64_t *n_lines,
                                 const int64_t *bases, int64_t *lines, const struct rounds *rounds, bool *differ,
                                 int64_t *n_closed, int64_t *heads)
{
    struct rounds into = *rounds;
    int64_t n_all = 0;
    *differ = false;
    for (int64_t i = 0; i < n_grids; i++) {
        const int64_t n = n_closed[i] = grid_complete(grids[i], n_lines[i], lines), cells = n * grids[i]->width;
        heads[i] = 0;
        if (!n)
            continue;
        bool here;
        grid_take(grids[i], lines, n, bases[i], &into, &here);
        *differ |= here;
        heads[i] = grid_drop_head(grids[i], n_lines[i]);
        n_all += n;
        into.seq += n;
        into.op += n;
        into.size_bytes += n;
        into.launch += cells;
        into.start += cells;
        into.end += cells;
        into.signature += cells;
        if (into.algorithm) {
            into.send_rate += cells;
            into.recv_rate += cells;
            into.algorithm += n;
        }
    }
    return n_all;
}
