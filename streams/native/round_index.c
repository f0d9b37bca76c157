/* Arranges the rounds of a stretch of time for the critical path: streams/slow/critical_path.py says what it means.
 *
 * Called by streams/slow/index_loops.py with columns whose types and lengths it has checked. Times are nanoseconds and
 * may be anything.
 */

#include "ordering.h"

#include <stdlib.h>

enum { NO_BLOCKS = -1, NO_MEMORY = -2 };

/* A block has `lengths[b]` rounds, each with a cell for each of its `widths[b]` members; what is said of each round,
 * each member and each cell lies one behind the other, block by block. `place` is that of each member among
 * `ranks`, which ascend. */
struct blocks {
    int64_t n_blocks, n_rounds, n_members, n_cells, n_ops, n_ranks;
    const int64_t *lengths, *widths, *key;
    const bool *is_pair, *sees_transfer, *is_uncertain;
    const int64_t *members, *place, *offset_ns, *ranks;
    const int8_t *op;
    const int64_t *arrival, *start, *end;
    const bool *all_wait; /* by operation */
};

/* What is found: of each round; of each cell that has a start and an end, by rank, start and end; of each that is
 * lost. */
struct arranged {
    int64_t *round_key, *last_rank, *last_start, *transfer, *anchor_rank, *anchor;
    int64_t *rank, *entry_start, *entry_end, *round;
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
    const int64_t *members, *place, *offset_ns, *arrival, *start, *end;
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

/* The entries of each rank: they begin at `begins[place]`, and `ends[place]` is behind the last one that is there. */
struct of_ranks {
    int64_t n_ranks, most; /* the largest number that one of them may have */
    int64_t *begins, *ends;
};

/* Room for as many entries as each rank has cells. Returns whether there is memory. */
static bool make_room(const struct blocks *of, struct of_ranks *room)
{
    room->begins = calloc(2 * (size_t)of->n_ranks + 1, sizeof *room->begins);
    if (!room->begins)
        return false;
    room->n_ranks = of->n_ranks;
    room->ends = room->begins + of->n_ranks;
    room->most = 0;
    const int64_t *place = of->place;
    for (int64_t b = 0; b < of->n_blocks; place += of->widths[b++])
        for (int64_t i = 0; of->sees_transfer[b] && i < of->widths[b]; i++)
            room->ends[place[i]] += of->lengths[b];
    for (int64_t at = 0, begin = 0; at < of->n_ranks; at++) {
        int64_t n = room->ends[at];
        room->most = larger_of(room->most, n);
        room->begins[at] = room->ends[at] = begin;
        begin += n;
    }
    return true;
}

static void put_entry(struct arranged *into, int64_t at, int64_t start, int64_t end, int64_t round, bool is_send)
{
    into->entry_start[at] = start;
    into->entry_end[at] = end;
    into->round[at] = round;
    into->is_send[at] = is_send;
}

/* Put the entries of each rank into order, one rank behind the other: a rank's are few, and stay in a processor's cache.
 * They lie in order of rounds until then. Returns whether there is memory. */
static bool put_in_order(const struct of_ranks *room, const int64_t *ranks, struct arranged *into)
{
    size_t most = (size_t)room->most;
    struct entry *entries = malloc(2 * sizeof *entries * most);
    int64_t *rounds = malloc(sizeof *rounds * most);
    bool *are_sends = malloc(sizeof *are_sends * most);
    bool has_memory = !most || (entries && rounds && are_sends);
    into->n_entries = 0;
    for (int64_t one = 0; has_memory && one < room->n_ranks; one++) {
        int64_t begin = room->begins[one], n = room->ends[one] - begin, to = into->n_entries;
        for (int64_t i = 0; i < n; i++)
            entries[i] = (struct entry){into->entry_start[begin + i], into->entry_end[begin + i], i};
        memcpy(rounds, into->round + begin, sizeof *rounds * (size_t)n);
        memcpy(are_sends, into->is_send + begin, sizeof *are_sends * (size_t)n);
        const struct entry *in_order = sorted(entries, entries + most, n);
        for (int64_t i = 0; i < n; i++, to++) {
            const struct entry *entry = &in_order[i];
            put_entry(into, to, entry->time, entry->then, rounds[entry->place], are_sends[entry->place]);
            into->rank[to] = ranks[one];
        }
        into->n_entries = to;
    }
    free(entries);
    free(rounds);
    free(are_sends);
    return has_memory;
}

/* What is found of each round, and of each of its cells, these in order of rounds. Returns whether all operations are
 * known ones. */
static bool look_at_rounds(const struct blocks *of, const struct of_ranks *room, struct arranged *into)
{
    int64_t number = 0, n_lost = 0;
    struct round r = {0, of->members, of->place, of->offset_ns, of->arrival, of->start, of->end};
    for (int64_t b = 0; b < of->n_blocks; b++) {
        r.n = of->widths[b];
        for (int64_t line = 0; line < of->lengths[b]; line++, number++) {
            if (of->op[number] < 0 || of->op[number] >= of->n_ops)
                return false;
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
                        bool is_send = of->is_pair[b] && i == 0;
                        put_entry(into, room->ends[r.place[i]]++, begun(&r, i), r.end[i], number, is_send);
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
        r.place += r.n;
        r.offset_ns += r.n;
    }
    into->n_lost = n_lost;
    return true;
}

/* Fill `into`. Returns 0, `NO_BLOCKS` where the blocks do not add up or there is no such operation, or `NO_MEMORY`. */
API int index_arrange(const struct blocks *of, struct arranged *into)
{
    struct of_ranks room;
    if (!adds_up(of))
        return NO_BLOCKS;
    if (!make_room(of, &room))
        return NO_MEMORY;
    int failed = !look_at_rounds(of, &room, into) ? NO_BLOCKS : put_in_order(&room, of->ranks, into) ? 0 : NO_MEMORY;
    free(room.begins);
    return failed;
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
 * `round_key[round]` is an entry's key, and `is_pair[key]` said of it; `n_of_key` has room for two numbers for each key.
 * Returns 0, or -1 where there is no such round or key. */
API int index_find_beside(int64_t n, const int64_t *rank, const int64_t *start, const int64_t *end,
                          const int64_t *round, int64_t n_rounds, const int64_t *round_key, int64_t n_keys,
                          const bool *is_pair, double share, int64_t *n_of_key, bool *is_beside)
{
    int64_t *n_all = n_of_key, *n_containing = n_of_key + n_keys;
    /* The entry behind this one and its key, and the first of the run behind its own. */
    int64_t later = -1, later_key = -1, following = -1;
    memset(n_of_key, 0, sizeof *n_of_key * 2 * (size_t)n_keys);
    for (int64_t i = n - 1; i >= 0; i--) {
        is_beside[i] = false;
        if (round[i] < 0 || round[i] >= n_rounds)
            return -1;
        int64_t key = round_key[round[i]];
        if (key < 0 || key >= n_keys)
            return -1;
        if (is_pair[key])
            continue;
        if (later >= 0 && (rank[later] != rank[i] || later_key != key))
            following = later;
        is_beside[i] = following >= 0 && rank[following] == rank[i] && start[following] > start[i] &&
                       end[following] < end[i];
        n_all[key]++;
        n_containing[key] += is_beside[i];
        later = i;
        later_key = key;
    }
    for (int64_t i = 0; i < n; i++)
        if (is_beside[i]) {
            int64_t key = round_key[round[i]];
            is_beside[i] = (double)n_containing[key] / (double)n_all[key] >= share;
        }
    return 0;
}
