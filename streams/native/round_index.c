/* Arranges the rounds of a stretch of time for the critical path: streams/slow/critical_path.py says what it means.
 *
 * Called by streams/slow/index_loops.py with columns whose types and lengths it has checked. Times are nanoseconds and
 * may be anything.
 */

#include "loops.h"

/* A block has `lengths[b]` rounds, each with a cell for each of its `widths[b]` members; what is said of each round,
 * each member and each cell lies one behind the other, block by block. */
struct blocks {
    int64_t n_blocks, n_rounds, n_members, n_cells, n_ops;
    const int64_t *lengths, *widths, *key;
    const bool *is_pair, *sees_transfer, *is_uncertain;
    const int64_t *members, *offset_ns;
    const int8_t *op;
    const int64_t *arrival, *start, *end;
    const bool *all_wait; /* by operation */
};

/* What is found: of each round; of each cell that has a start and an end; of each that is lost. */
struct arranged {
    int64_t *round_key, *last_rank, *last_start, *transfer, *anchor_rank, *anchor;
    int64_t *rank, *entry_start, *entry_end, *round, *entry_key;
    bool *is_send;
    int64_t *lost_rank, *lost_round, *lost_start, *lost_end;
    int64_t n_entries, n_lost;
};

/* Whether there is as much memory as the blocks say, and each has a member. */
static bool adds_up(const struct blocks *of)
{
    int64_t n_rounds = of->n_rounds, n_members = of->n_members, n_cells = of->n_cells;
    for (int64_t b = 0; b < of->n_blocks; b++) {
        int64_t length = of->lengths[b], width = of->widths[b];
        if (length < 0 || width < 1 || length > n_rounds || width > n_members || length > n_cells / width)
            return false;
        n_rounds -= length;
        n_members -= width;
        n_cells -= length * width;
    }
    return n_rounds == 0 && n_members == 0 && n_cells == 0;
}

/* One round of a block: its cells, its members and how far their clocks are ahead. */
struct round {
    int64_t n;
    const int64_t *members, *offset_ns, *arrival, *start, *end;
};

static inline int64_t begun(const struct round *r, int64_t i)
{
    return r->start[i] > 0 ? r->start[i] : r->arrival[i];
}

static inline bool is_seen(const struct round *r, int64_t i)
{
    return r->end[i] > 0 && begun(r, i) > 0;
}

/* Who started last, and how long the transfer took from there: 0 where that is not known. */
static int64_t last_starter(const struct round *r, bool is_pair, bool needs_no_clock, int64_t *transfer)
{
    int64_t shortest_ns = INT64_MAX, shortest = 0, latest_ns = INT64_MIN, latest = 0, last_end = INT64_MIN;
    bool all_seen = true;
    for (int64_t i = 0; i < r->n; i++) {
        bool seen = is_seen(r, i);
        if (seen && minus(r->end[i], begun(r, i)) < shortest_ns) {
            shortest_ns = minus(r->end[i], begun(r, i));
            shortest = i;
        }
        if (seen && minus(begun(r, i), r->offset_ns[i]) > latest_ns) {
            latest_ns = minus(begun(r, i), r->offset_ns[i]);
            latest = i;
        }
        last_end = larger_of(last_end, seen ? minus(r->end[i], r->offset_ns[i]) : 0);
        all_seen = all_seen && seen;
    }
    /* Of a pair the receiver's end counts: a sender may be through as soon as its data are in a buffer. */
    int64_t receiver = r->n - 1;
    if (is_pair && is_seen(r, receiver))
        last_end = minus(r->end[receiver], r->offset_ns[receiver]);
    int64_t last = needs_no_clock ? shortest : latest;
    int64_t took = needs_no_clock ? shortest_ns : minus(last_end, latest_ns);
    *transfer = is_seen(r, last) && (!is_pair || all_seen) ? larger_of(took, 0) : 0;
    return last;
}

/* Fill `into`. Returns 0, or -1 where the blocks do not add up or there is no such operation. */
API int index_arrange(const struct blocks *of, struct arranged *into)
{
    if (!adds_up(of))
        return -1;
    int64_t number = 0, n_entries = 0, n_lost = 0;
    struct round r = {0, of->members, of->offset_ns, of->arrival, of->start, of->end};
    for (int64_t b = 0; b < of->n_blocks; b++) {
        r.n = of->widths[b];
        for (int64_t line = 0; line < of->lengths[b]; line++, number++) {
            if (of->op[number] < 0 || of->op[number] >= of->n_ops)
                return -1;
            int64_t anchor = 0, anchor_ns = INT64_MIN;
            for (int64_t i = 0; i < r.n; i++) {
                int64_t ended = r.end[i] > 0 ? r.end[i] : r.arrival[i];
                if (ended > anchor_ns) {
                    anchor_ns = ended;
                    anchor = i;
                }
            }
            into->round_key[number] = of->key[b];
            into->anchor_rank[number] = r.members[anchor];
            into->anchor[number] = r.end[anchor] > 0 ? r.end[anchor] : r.arrival[anchor];
            into->last_rank[number] = r.members[0];
            into->last_start[number] = into->transfer[number] = 0;
            if (of->sees_transfer[b]) {
                bool all_wait = of->all_wait[of->op[number]] && !of->is_pair[b];
                int64_t last =
                    last_starter(&r, of->is_pair[b], all_wait || of->is_uncertain[b], &into->transfer[number]);
                into->last_rank[number] = r.members[last];
                into->last_start[number] = begun(&r, last);
                /* A lost call lasted as long as its transfer at least: so much of it is no time of the rank's own. */
                int64_t last_ns = minus(begun(&r, last), r.offset_ns[last]);
                for (int64_t i = 0; i < r.n; i++) {
                    if (is_seen(&r, i)) {
                        into->rank[n_entries] = r.members[i];
                        into->entry_start[n_entries] = begun(&r, i);
                        into->entry_end[n_entries] = r.end[i];
                        into->round[n_entries] = number;
                        into->entry_key[n_entries] = of->key[b];
                        into->is_send[n_entries++] = of->is_pair[b] && i == 0;
                    }
                    if (r.end[i] == 0 && r.arrival[i] == 0) {
                        into->lost_rank[n_lost] = r.members[i];
                        into->lost_round[n_lost] = number;
                        into->lost_start[n_lost] = plus(last_ns, r.offset_ns[i]);
                        into->lost_end[n_lost] = plus(into->lost_start[n_lost], into->transfer[number]);
                        n_lost++;
                    }
                }
            }
            r.arrival += r.n;
            r.start += r.n;
            r.end += r.n;
        }
        r.members += r.n;
        r.offset_ns += r.n;
    }
    into->n_entries = n_entries;
    into->n_lost = n_lost;
    return 0;
}

/* Which sends, of entries by (rank, start), their rank did not stand still for: its next call does not follow at once.
 */
API void index_find_free_sends(int64_t n, const int64_t *rank, const int64_t *start, const int64_t *end,
                               const bool *is_send, double at_once_ns, double at_once_share, bool *is_free_send)
{
    for (int64_t i = 0; i < n; i++) {
        bool stands_still = false;
        if (is_send[i] && i + 1 < n && rank[i + 1] == rank[i]) {
            double apart = (double)minus(start[i + 1], end[i]);
            double within = larger(at_once_ns, at_once_share * (double)minus(end[i], start[i]));
            stands_still = -within <= apart && apart <= within;
        }
        is_free_send[i] = is_send[i] && !stands_still;
    }
}

/* From when on the rank of each entry, by (rank, start), may have waited in it: a send that contains whole calls of its
 * rank ran beside them, until the last of them was over. Where many of its calls are under way at once not all are
 * looked at. Returns whether there is such a send. */
API bool index_find_waits(int64_t n, const int64_t *rank, const int64_t *start, const int64_t *end, const bool *is_send,
                          int64_t *waits_from)
{
    enum { LOOKED_AT = 64 };
    bool found = false;
    for (int64_t i = 0; i < n; i++) {
        waits_from[i] = start[i];
        if (!is_send[i] || i + 1 >= n || rank[i + 1] != rank[i] || start[i + 1] >= end[i])
            continue;
        int64_t low = i + 1, high = n; /* of those behind it, the first that begins when it is over */
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (rank[middle] == rank[i] && start[middle] < end[i])
                low = middle + 1;
            else
                high = middle;
        }
        for (int64_t at = low - 1; at > i && at >= low - LOOKED_AT; at--)
            if (end[at] < end[i]) {
                waits_from[i] = larger_of(start[i], end[at]);
                found = true;
                break;
            }
    }
    return found;
}

/* Which entries of collectives contain whole calls of other ones, where so large a share of those of their key do.
 *
 * `is_pair[key]`; `n_of_key` has room for two numbers for each key. Returns 0, or -1 where there is no such key. */
API int index_find_beside(int64_t n, const int64_t *rank, const int64_t *start, const int64_t *end, const int64_t *key,
                          int64_t n_keys, const bool *is_pair, double share, int64_t *n_of_key, bool *is_beside)
{
    int64_t *n_all = n_of_key, *n_containing = n_of_key + n_keys;
    int64_t later = -1, following = -1; /* the entry behind this one, and the first of the run behind its own */
    memset(n_of_key, 0, sizeof *n_of_key * 2 * (size_t)n_keys);
    for (int64_t i = n - 1; i >= 0; i--) {
        is_beside[i] = false;
        if (key[i] < 0 || key[i] >= n_keys)
            return -1;
        if (is_pair[key[i]])
            continue;
        if (later >= 0 && (rank[later] != rank[i] || key[later] != key[i]))
            following = later;
        is_beside[i] = following >= 0 && rank[following] == rank[i] && start[following] > start[i] &&
                       end[following] < end[i];
        n_all[key[i]]++;
        n_containing[key[i]] += is_beside[i];
        later = i;
    }
    for (int64_t i = 0; i < n; i++)
        if (is_beside[i])
            is_beside[i] = (double)n_containing[key[i]] / (double)n_all[key[i]] >= share;
    return 0;
}
