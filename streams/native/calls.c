/* What is worked out of the calls of a host before anybody asks of which communicator they are: whether their times
 * can be, how large they are, and their signatures. Called by streams/rounds/call_loops.py with columns whose types and
 * lengths it has checked. */

#include "loops.h"

/* Calls as they came. Where nothing is known of a column in any row it is NULL; `op` and `launch` are there. */
struct calls {
    const int8_t *op;
    const int64_t *count;
    const int8_t *dtype, *redop;
    const int32_t *peer;
    const int8_t *direction, *algorithm, *protocol;
    const int64_t *launch, *start, *end;
    const double *send_rate, *recv_rate;
};

/* What codes stand for (pacehound/model/codes.py): of an operation, whether all ranks name one size and type, a
 * reduction, or a root; how wide a type is; the algorithm as rounds have it. And how a signature is packed: from which
 * bit on each part of it lies (streams/rounds/signatures.py). */
struct meanings {
    int64_t n_ops;
    const bool *is_counted, *is_reducing, *is_rooted;
    int64_t n_dtypes;
    const int64_t *dtype_bytes;
    int64_t n_algorithms;
    const int8_t *algorithm_of_rounds;
    int64_t dtype_at, redop_at, algorithm_at, protocol_at, root_at, count_at, n_counts;
};

/* What is written, as many of each as there are rows. */
struct ready {
    int64_t *size_bytes, *signature, *launch, *start, *end;
    bool *is_backward;
    int8_t *algorithm;
};

/* Of how many rows the times go backwards, how many are between two ranks, and of how many a rate or the algorithm is
 * known. */
struct tally {
    int64_t n_backward, n_pairs, n_transfers;
};

static inline uint64_t shifted(int64_t value, int64_t at)
{
    return (uint64_t)value << at;
}

static inline int64_t signature_of(const struct calls *calls, const struct meanings *known, int64_t i)
{
    const int8_t op = calls->op[i];
    uint64_t packed = (uint64_t)(int64_t)op;
    if (op >= 0 && op < known->n_ops) {
        if (known->is_counted[op]) {
            if (calls->dtype)
                packed |= shifted(calls->dtype[i], known->dtype_at);
            if (calls->count && calls->count[i] >= 0)
                packed |= shifted(calls->count[i] % known->n_counts + 1, known->count_at);
        }
        if (known->is_reducing[op] && calls->redop)
            packed |= shifted(calls->redop[i], known->redop_at);
        if (known->is_rooted[op] && calls->peer)
            packed |= shifted((int64_t)calls->peer[i] + 1, known->root_at);
    }
    if (calls->algorithm)
        packed |= shifted(calls->algorithm[i], known->algorithm_at);
    if (calls->protocol)
        packed |= shifted(calls->protocol[i], known->protocol_at);
    return (int64_t)packed;
}

static inline int64_t size_of(const struct calls *calls, const struct meanings *known, int64_t i)
{
    if (!calls->count || !calls->dtype || calls->dtype[i] < 0 || calls->dtype[i] >= known->n_dtypes)
        return 0;
    return (int64_t)((uint64_t)larger_of(calls->count[i], 0) * (uint64_t)known->dtype_bytes[calls->dtype[i]]);
}

/* Times as they can be: where they go backwards, start and end are taken for unseen. */
static inline bool take_times(const struct calls *calls, const struct ready *ready, int64_t i)
{
    int64_t launch = calls->launch[i], start = calls->start ? calls->start[i] : 0, end = calls->end ? calls->end[i] : 0;
    bool is_negative = launch < 0 || start < 0 || end < 0;
    bool is_backward = is_negative || (end > 0 && (end < launch || end < start));
    ready->launch[i] = larger_of(launch, 0);
    ready->start[i] = is_backward ? 0 : start;
    ready->end[i] = is_backward ? 0 : end;
    return is_backward;
}

API void calls_ready(int64_t n, const struct calls *calls, const struct meanings *known, const struct ready *ready,
                     struct tally *tally)
{
    *tally = (struct tally){0, 0, 0};
    for (int64_t i = 0; i < n; i++) {
        ready->size_bytes[i] = size_of(calls, known, i);
        ready->signature[i] = signature_of(calls, known, i);
        ready->is_backward[i] = take_times(calls, ready, i);
        tally->n_backward += ready->is_backward[i];
        tally->n_pairs += calls->direction && calls->direction[i];
        const int8_t code = calls->algorithm ? calls->algorithm[i] : 0;
        ready->algorithm[i] = code >= 0 && code < known->n_algorithms ? known->algorithm_of_rounds[code] : 0;
        tally->n_transfers +=
            ready->algorithm[i] || is_known_at(calls->send_rate, i) || is_known_at(calls->recv_rate, i);
    }
}
