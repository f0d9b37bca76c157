/* longest.c for one type of REAL, that of the durations; NAMED(x) is the name of its functions.
 *
 * A lane is one DP rank in one step. Lanes lie side by side, so that a step of a loop is one instruction for several.
 * Everything is an argument: nothing is kept, and several threads may call at once. Operands come in the order that
 * streams/whatif/longest.py has, so that both give the same bits.
 */

static void NAMED(plus_own)(double *out, const double *begin, const REAL *own_s, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = begin[i] + (double)own_s[i];
}

/* As `together` in longest.py. Returns 0, or -1 where there is no memory. */
API int NAMED(together)(const struct graph *graph, const REAL *own_s, int64_t n_ops, int64_t n_steps, int64_t n_dp,
                        const double *ideal_s, const int8_t *keeps, const uint8_t *keeps_on, double *end_s,
                        double *optimizer_end_s)
{
    int64_t n_lanes = n_steps * n_dp, steps_at_once = BLOCK_LANES / n_dp > 1 ? BLOCK_LANES / n_dp : 1;
    int64_t width = steps_at_once * n_dp;
    double *ends = malloc(sizeof *ends * (size_t)((graph->n_slots + 3) * width));
    if (ends == NULL)
        return -1;
    double *begin = ends + graph->n_slots * width, *finish = begin + width, *optimizer = finish + width;
    (void)n_ops;
    for (int64_t first_step = 0; first_step < n_steps; first_step += steps_at_once) {
        int64_t n = (n_steps - first_step < steps_at_once ? n_steps - first_step : steps_at_once) * n_dp;
        int64_t lane = first_step * n_dp;
        memset(finish, 0, sizeof *finish * (size_t)width);
        memset(optimizer, 0, sizeof *optimizer * (size_t)width);
        for (int64_t node = 0; node < graph->n_nodes; node++) {
            latest_of_waits(begin, ends, width, graph, node, n);
            if (graph->over_dp[node])
                for (int64_t at = 0; at < n; at += n_dp) {
                    double latest = begin[at];
                    for (int64_t i = at + 1; i < at + n_dp; i++)
                        latest = begin[i] > latest ? begin[i] : latest;
                    for (int64_t i = at; i < at + n_dp; i++)
                        begin[i] = latest;
                }
            for (int64_t at = graph->member_bounds[node]; at < graph->member_bounds[node + 1]; at++) {
                int64_t op = graph->members[at];
                const REAL *own = own_s + op * n_lanes + lane;
                double *out = ends + graph->slot[op] * width;
                if (keeps[op] == IDEAL) {
                    plus_ideal(out, begin, ideal_s[op], n);
                } else if (keeps[op] == KEPT) {
                    NAMED(plus_own)(out, begin, own, n);
                } else {
                    const uint8_t *mask = keeps_on + op * n_dp;
                    for (int64_t i = 0; i < n; i++)
                        out[i] = begin[i] + (mask[i % n_dp] ? (double)own[i] : ideal_s[op]);
                }
                if (graph->is_last[op])
                    keep_latest(finish, out, n);
                if (graph->is_optimizer[op])
                    keep_latest(optimizer, out, n);
            }
        }
        for (int64_t i = 0; i < n / n_dp; i++) {
            end_s[first_step + i] = largest(finish + i * n_dp, n_dp);
            optimizer_end_s[first_step + i] = largest(optimizer + i * n_dp, n_dp);
        }
    }
    free(ends);
    return 0;
}

/* As `alone` in longest.py. Returns 0, or -1 where there is no memory. */
API int NAMED(alone)(const struct graph *graph, const REAL *own_s, int64_t n_ops, int64_t n_steps, int64_t n_dp,
                     const double *ideal_s, const int8_t *keeps, double *end_s, double *optimizer_end_s)
{
    enum { width = BLOCK_LANES / 2 };
    int64_t n_lanes = n_steps * n_dp;
    int has_others = n_dp > 1;
    double *ends = malloc(sizeof *ends * (size_t)((2 * graph->n_slots + 4) * width));
    if (ends == NULL)
        return -1;
    double *others = ends + graph->n_slots * width, *begin = others + graph->n_slots * width;
    double *other_begin = begin + width, *finish = other_begin + width, *optimizer = finish + width;
    (void)n_ops;
    for (int64_t lane = 0; lane < n_lanes; lane += width) {
        int64_t n = n_lanes - lane < width ? n_lanes - lane : width;
        memset(finish, 0, sizeof *finish * width);
        memset(optimizer, 0, sizeof *optimizer * width);
        for (int64_t node = 0; node < graph->n_nodes; node++) {
            latest_of_waits(begin, ends, width, graph, node, n);
            if (has_others) {
                latest_of_waits(other_begin, others, width, graph, node, n);
                if (graph->over_dp[node]) {
                    keep_latest(begin, other_begin, n);
                    memcpy(other_begin, begin, sizeof *begin * (size_t)n);
                }
            }
            for (int64_t at = graph->member_bounds[node]; at < graph->member_bounds[node + 1]; at++) {
                int64_t op = graph->members[at];
                double *out = ends + graph->slot[op] * width;
                if (keeps[op] == IDEAL)
                    plus_ideal(out, begin, ideal_s[op], n);
                else
                    NAMED(plus_own)(out, begin, own_s + op * n_lanes + lane, n);
                if (graph->is_last[op])
                    keep_latest(finish, out, n);
                if (graph->is_optimizer[op])
                    keep_latest(optimizer, out, n);
                if (has_others) {
                    out = others + graph->slot[op] * width;
                    plus_ideal(out, other_begin, ideal_s[op], n);
                    if (graph->is_last[op])
                        keep_latest(finish, out, n);
                    if (graph->is_optimizer[op])
                        keep_latest(optimizer, out, n);
                }
            }
        }
        memcpy(end_s + lane, finish, sizeof *finish * (size_t)n);
        memcpy(optimizer_end_s + lane, optimizer, sizeof *optimizer * (size_t)n);
    }
    free(ends);
    return 0;
}

/* As `timeline` in longest.py. Returns 0, or -1 where there is no memory. */
API int NAMED(timeline)(const struct graph *graph, const REAL *own_s, int64_t n_ops, int64_t n_steps, int64_t n_dp,
                        const REAL *delays_s, const uint8_t *is_delayed, double *starts_s, double *ends_s)
{
    int64_t n_lanes = n_steps * n_dp;
    double *began = malloc(sizeof *began * (size_t)n_lanes);
    if (began == NULL)
        return -1;
    (void)n_ops;
    for (int64_t node = 0; node < graph->n_nodes; node++) {
        int64_t first = graph->member_bounds[node], last = graph->member_bounds[node + 1];
        for (int64_t at = first; at < last; at++) {
            int64_t op = graph->members[at];
            for (int64_t lane = 0; lane < n_lanes; lane++) {
                double start = 0.0;
                for (int64_t before = graph->own_bounds[at]; before < graph->own_bounds[at + 1]; before++) {
                    double end = ends_s[graph->own_waits[before] * n_lanes + lane];
                    start = before == graph->own_bounds[at] || end > start ? end : start;
                }
                if (is_delayed[op * n_dp + lane % n_dp])
                    start += (double)delays_s[op * n_lanes + lane];
                starts_s[op * n_lanes + lane] = start;
                if (at == first || start > began[lane])
                    began[lane] = start;
            }
        }
        if (graph->over_dp[node])
            for (int64_t lane = 0; lane < n_lanes; lane += n_dp) {
                double latest = largest(began + lane, n_dp);
                for (int64_t i = 0; i < n_dp; i++)
                    began[lane + i] = latest;
            }
        for (int64_t at = first; at < last; at++) {
            int64_t op = graph->members[at];
            NAMED(plus_own)(ends_s + op * n_lanes, began, own_s + op * n_lanes, n_lanes);
        }
    }
    free(began);
    return 0;
}
