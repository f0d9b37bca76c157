/* attempt_mark.h: what tells the communicators of an attempt from those of others (pacehound/model/identity.py). */
#ifndef PACEHOUND_ATTEMPT_MARK_H
#define PACEHOUND_ATTEMPT_MARK_H

#include <stdint.h>

/* Lays the mark of `attempt` over an id, or takes it off where it is on it. Attempt 0 has none. Can't fail. */
void ph_mark_attempt(uint8_t id[16], int32_t attempt);

#endif
