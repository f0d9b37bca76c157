/* real.h: how a function of ours finds the one that it stands in front of. */
#ifndef PACEHOUND_REAL_H
#define PACEHOUND_REAL_H

#include "shim.h"

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

/* The real function behind the one that this stands in, of the same type; looked up once. */
#define REAL(name)                                                                    \
    ({                                                                                \
        static _Atomic(void *) found;                                                 \
        (__typeof__(&name)) ph_real(&found, #name, CALLER);                              \
    })

static inline void *ph_real(_Atomic(void *) *found, const char *name, void *caller) {
    void *function = atomic_load_explicit(found, memory_order_acquire);
    return PH_LIKELY(function != NULL) ? function : ph_real_first(found, name, caller);
}

#endif
