/* blake2b.h: BLAKE2b (RFC 7693) without a key, for ids that pacehound/model/identity.py computes with hashlib. */
#ifndef PACEHOUND_BLAKE2B_H
#define PACEHOUND_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

struct ph_blake2b {
    uint64_t h[8], counter;
    uint8_t block[128];
    size_t filled, digest_bytes;
};

/* Can't fail. The state is the caller's; `digest_bytes` is 1 to 64. */
void ph_blake2b_begin(struct ph_blake2b *state, size_t digest_bytes);
void ph_blake2b_add(struct ph_blake2b *state, const void *data, size_t size);
void ph_blake2b_end(struct ph_blake2b *state, uint8_t *digest);

#endif
