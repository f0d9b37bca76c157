/* What the inner loops share: how they are seen from Python, and how a loop is made for several processors. */

#ifndef PACEHOUND_LOOPS_H
#define PACEHOUND_LOOPS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* A function of which the library holds one version per size of vectors; the loader takes the one that the processor
 * has. Values are the same in all of them: sums have one order (`lanes` in verification.c), and a product and a sum
 * are two roundings (-ffp-contract=off). The sanitizers are not there yet when the loader asks. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#define FOR_ALL_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_ALL_VECTORS
#endif

static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double smaller(double a, double b)
{
    return a < b ? a : b;
}

static inline double between(double least, double value, double most)
{
    return smaller(larger(value, least), most);
}

static inline int64_t larger_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t smaller_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Whether a value of a column, which may not be there, is known. */
static inline bool is_known_at(const double *column, int64_t i)
{
    return column && isfinite(column[i]);
}

/* Times may be anything: what is taken from what, or added, wraps, as NumPy's does. */
static inline int64_t minus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static inline int64_t plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* Where `value` belongs among `n` ascending numbers: before the first that is not smaller. */
static inline int64_t place_of(const int64_t *ascending, int64_t n, int64_t value)
{
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (ascending[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The same, after the last that is not larger. */
static inline int64_t place_after(const int64_t *ascending, int64_t n, int64_t value)
{
    return value == INT64_MAX ? n : place_of(ascending, n, value + 1);
}

#endif
