/* Tells Python how the records lie in memory. */

#include "records.h"

#include "loops.h"

#include <stddef.h>

/* `of`: "f8", "i8", or the name of a record. `count` is 0 where it is no array. The last one has no name. */
struct field {
    const char *name, *of;
    int64_t count, offset;
};

#define OF(type)                                                                                                      \
    _Generic((type *)0,                                                                                               \
        double *: "f8", int64_t *: "i8", struct measure *: "measure", struct posterior *: "posterior",                \
        struct drift *: "drift", struct pattern *: "pattern")
#define TOLD(type, name) {#name, OF(type), 0, offsetof(struct THIS, name)},
#define TOLD_ARRAY(type, name, count) {#name, OF(type), count, offsetof(struct THIS, name)},

#define THIS measure
API const struct field measure_fields[] = {MEASURE(TOLD, TOLD_ARRAY){0}};
#undef THIS
#define THIS posterior
API const struct field posterior_fields[] = {POSTERIOR(TOLD, TOLD_ARRAY){0}};
#undef THIS
#define THIS drift
API const struct field drift_fields[] = {DRIFT(TOLD, TOLD_ARRAY){0}};
#undef THIS
#define THIS pattern
API const struct field pattern_fields[] = {PATTERN(TOLD, TOLD_ARRAY){0}};
#undef THIS
#define THIS series
API const struct field series_fields[] = {SERIES(TOLD, TOLD_ARRAY){0}};
#undef THIS
