/* packing.c for one type of REAL, that of the times; NAMED(x) is the name of its functions. */

/* As `count_keys` in packing.py; `seen` has shape (n_types, n_stages, n_seq). Can't fail. */
API void NAMED(count_keys)(int64_t n_rows, const int8_t *optype, const int16_t *stage, const int32_t *dp_rank,
                           const int32_t *seq_id, const REAL *duration_s, const REAL *start_s, int64_t n_stages,
                           int64_t n_seq, int64_t *seen, int64_t *refused)
{
    for (int64_t i = 0; i < n_rows; i++) {
        if (optype[i] < 0)
            refused[OF_UNKNOWN_TYPE]++;
        else if (stage[i] < 0 || dp_rank[i] < 0 || seq_id[i] < 0 || !isfinite(start_s[i]))
            refused[IMPOSSIBLE]++;
        else if (!(duration_s[i] >= 0) || !isfinite(duration_s[i]))
            refused[NEGATIVE]++;
        else
            seen[(optype[i] * n_stages + stage[i]) * n_seq + seq_id[i]]++;
    }
}

/* As `scatter` in packing.py. Can't fail. */
API void NAMED(scatter)(int64_t n_rows, const int8_t *optype, const int16_t *stage, const int32_t *dp_rank,
                        const int32_t *seq_id, const int64_t *step, const REAL *start_s, const REAL *duration_s,
                        const int32_t *mb_id, const int32_t *rank, const int64_t *steps, int64_t n_steps,
                        const int64_t *op_of_key, int64_t n_stages, int64_t n_seq, int64_t n_dp, REAL *starts_s,
                        REAL *durations_s, int64_t *first_row, int64_t *ranks, int64_t *surplus, int64_t *moved,
                        int64_t *refused)
{
    int64_t at = -1, last_step = -1;
    for (int64_t i = 0; i < n_rows; i++) {
        if (optype[i] < 0 || stage[i] < 0 || dp_rank[i] < 0 || seq_id[i] < 0 || !isfinite(start_s[i]) ||
            !isfinite(duration_s[i]) || !(duration_s[i] >= 0))
            continue;
        if (at < 0 || step[i] != last_step) {
            last_step = step[i];
            at = place_of(steps, n_steps, last_step);
        }
        int64_t op = op_of_key[(optype[i] * n_stages + stage[i]) * n_seq + seq_id[i]];
        if (op < 0) {
            surplus[at]++;
            continue;
        }
        ranks[dp_rank[i] * n_stages + stage[i]] = rank[i];
        if (first_row[op] < 0)
            first_row[op] = i;
        else if (mb_id[i] != mb_id[first_row[op]])
            moved[at]++;
        int64_t cell = (op * n_steps + at) * n_dp + dp_rank[i];
        if (isnan(durations_s[cell])) {
            starts_s[cell] = start_s[i];
            durations_s[cell] = duration_s[i];
        } else {
            refused[TWICE]++;
            if (start_s[i] < starts_s[cell]) {
                starts_s[cell] = start_s[i];
                durations_s[cell] = duration_s[i];
            }
        }
    }
}
