#include "blake2b.h"

#include <string.h>

enum { BLOCK_BYTES = 128, ROUNDS = 12 };

static const uint64_t start[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};

/* Which word of the block each step takes; the schedule starts over after ten rounds. */
static const uint8_t schedule[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

/* The columns, then the diagonals, of the 4 x 4 working words. */
static const uint8_t quarters[8][4] = {
    {0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15},
    {0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13}, {3, 4, 9, 14},
};

static uint64_t turn_right(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }

static void compress(struct ph_blake2b *state, int is_last) {
    uint64_t v[16], m[16];
    memcpy(m, state->block, sizeof m); /* little-endian machines only, like the rings */
    for (int i = 0; i < 8; i++) {
        v[i] = state->h[i];
        v[i + 8] = start[i];
    }
    v[12] ^= state->counter; /* the high half of the counter stays 0: no input of ours is that long */
    if (is_last) v[14] = ~v[14];
    for (int round = 0; round < ROUNDS; round++) {
        for (int q = 0; q < 8; q++) {
            const uint8_t *at = quarters[q], *word = schedule[round % 10] + 2 * q;
            uint64_t a = v[at[0]], b = v[at[1]], c = v[at[2]], d = v[at[3]];
            for (int half = 0; half < 2; half++) {
                a += b + m[word[half]];
                d = turn_right(d ^ a, half ? 16 : 32);
                c += d;
                b = turn_right(b ^ c, half ? 63 : 24);
            }
            v[at[0]] = a, v[at[1]] = b, v[at[2]] = c, v[at[3]] = d;
        }
    }
    for (int i = 0; i < 8; i++) state->h[i] ^= v[i] ^ v[i + 8];
}

void ph_blake2b_begin(struct ph_blake2b *state, size_t digest_bytes) {
    memset(state, 0, sizeof *state);
    memcpy(state->h, start, sizeof start);
    state->h[0] ^= 0x01010000u ^ digest_bytes;
    state->digest_bytes = digest_bytes;
}

void ph_blake2b_add(struct ph_blake2b *state, const void *data, size_t size) {
    const uint8_t *bytes = data;
    while (size > 0) {
        if (state->filled == BLOCK_BYTES) { /* only once more follows: the last block is marked as such */
            state->counter += BLOCK_BYTES;
            compress(state, 0);
            state->filled = 0;
        }
        size_t part = BLOCK_BYTES - state->filled < size ? BLOCK_BYTES - state->filled : size;
        memcpy(state->block + state->filled, bytes, part);
        state->filled += part;
        bytes += part;
        size -= part;
    }
}

void ph_blake2b_end(struct ph_blake2b *state, uint8_t *digest) {
    state->counter += state->filled;
    memset(state->block + state->filled, 0, BLOCK_BYTES - state->filled);
    compress(state, 1);
    memcpy(digest, state->h, state->digest_bytes);
}
