/* Rows of operations to tensors, in two passes: streams/whatif/packing.py in C.
 *
 * Called from Python with columns whose types and lengths it has checked; float64 and float32 times.
 */

#include "loops.h"

#include <math.h>

enum { OF_UNKNOWN_TYPE = 0, NEGATIVE = 1, IMPOSSIBLE = 2, TWICE = 3 };

#define REAL double
#define NAMED(name) name##_float64
#include "packing_of.h"
#undef REAL
#undef NAMED
#define REAL float
#define NAMED(name) name##_float32
#include "packing_of.h"
