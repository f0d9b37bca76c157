/* Rows of operations to tensors, in two passes: streams/whatif/packing.py in C.
 *
 * Called from Python with columns whose types and lengths it has checked; float64 and float32 times.
 */

#include <math.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

enum { OF_UNKNOWN_TYPE = 0, NEGATIVE = 1, IMPOSSIBLE = 2, TWICE = 3 };

/* Where `step` stands among the ascending `steps`. */
static int64_t place_of(const int64_t *steps, int64_t n_steps, int64_t step)
{
    int64_t low = 0, high = n_steps;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (steps[middle] < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

#define REAL double
#define NAMED(name) name##_float64
#include "packing_of.h"
#undef REAL
#undef NAMED
#define REAL float
#define NAMED(name) name##_float32
#include "packing_of.h"
