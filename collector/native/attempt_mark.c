/* attempt_mark.c: a mark is laid over an id, so that who counts attempts otherwise can exchange it. */
#include "attempt_mark.h"

#include <stdio.h>

#include "blake2b.h"

void ph_mark_attempt(uint8_t id[16], int32_t attempt) {
    struct ph_blake2b state;
    uint8_t mark[8];
    char text[24];
    if (attempt == 0) return;
    int length = snprintf(text, sizeof text, "attempt %d", attempt);
    ph_blake2b_begin(&state, sizeof mark);
    ph_blake2b_add(&state, text, (size_t)length);
    ph_blake2b_end(&state, mark);
    for (size_t i = 0; i < sizeof mark; i++) id[i] ^= mark[i];
}
