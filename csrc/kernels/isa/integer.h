/* The inner loops on INT8 activations that have more than one implementation. Sums are exact, so
 * the order within one does not matter; every implementation gives the same bits.
 * docs/numbers.md, 6.2, 6.3. */
#ifndef LORA_KERNELS_INTEGER_H
#define LORA_KERNELS_INTEGER_H

#include <stdint.h>

#include "lora/abi.h"

/* Compilers before these do not know the instructions. */
#if defined(__x86_64__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define LORA_HAS_AVXVNNI 1
#else
#define LORA_HAS_AVXVNNI 0
#endif

/* Some rows times one column tile. Rows are `stride` bytes apart, in whole blocks of K: what lies
 * beyond K is 0. */
struct integer_tile {
    uint32_t rows, k;
    const int8_t *x;
    uint64_t stride;
    const int16_t *words;  /* what lora_integer.spread made of x: [blocks][rows]; NULL: nothing */
    const int32_t *totals; /* of a row: the sum of x */
    const int32_t *units;  /* [rows][unit_count]: the same of each unit of 32 columns */
    uint32_t unit_count;
    uint32_t group;         /* of 4-bit weights: columns that share a scale */
    const uint32_t *starts; /* of the eight segments, then K */
    const uint8_t *const *blocks;
    const uint8_t *const *next; /* blocks that are read after these */
    uint32_t block_count;
    float *out; /* [rows][32] */
};

/* Block i, or where the tile ends the next one's. */
static inline const uint8_t *integer_prefetched(const struct integer_tile *tile, uint32_t i) {
    uint32_t beyond = i - tile->block_count;
    if (i < tile->block_count) return tile->blocks[i];
    return tile->next[beyond < tile->block_count ? beyond : tile->block_count - 1];
}

#define INTEGER_AHEAD 12 /* blocks of K or V that are fetched before they are read */

/* Tiles of K or V that several rows see whole. */
struct integer_tiles {
    uint32_t rows, tiles, head_dim;
    const int8_t *const *blocks; /* [tiles], and INTEGER_AHEAD more, which are only fetched */
};

struct lora_integer {
    /* units[i] = sum of x[32*i .. 32*i + 31]. */
    void (*sum_units)(const int8_t *x, uint32_t units, int32_t *sums);
    /* From `many_rows` rows on, int8 also reads x as words, a row's blocks of K `stride` words
     * apart. NULL: it never does. */
    uint32_t many_rows;
    void (*spread)(const int8_t *x, uint32_t blocks, uint64_t stride, int16_t *words);
    /* out = FP32(sum of x*w). */
    void (*int8)(const struct integer_tile *tile);
    /* out = the tree over segments of FP32(sum of x*q - zero*sum of x)*scale, part after part. */
    void (*int4)(const struct integer_tile *tile);
    /* One block of 4-bit weights as FP16((q - zero)*scale): wide[128][32]. */
    void (*widen)(const uint8_t *block, uint32_t group, uint16_t *wide);
    /* y = clamp(rint(x*inverse), -127, 127), 0 where that is NaN; returns how often it is. */
    uint32_t (*quantize)(const uint16_t *x, uint32_t count, float inverse, int8_t *y);
    /* The largest bits of |x|, NaN left out: magnitudes of FP16 order as integers do. */
    uint16_t (*max_magnitude)(const uint16_t *x, uint32_t count);
    /* s[row][32*t ..] = FP32(q[row].k)*scale over K blocks [head_dim][32]; totals[row] is the sum
     * of q[row]. */
    void (*scores)(const struct integer_tiles *k, const int8_t *const *q, const int32_t *totals,
                   float scale, float *const *s);
    /* e[i] = rint(127*exp(s[i] - max)); returns their sum. */
    int32_t (*weights)(const float *s, uint32_t count, float max, uint8_t *e);
    /* sums[row][d] += sum over i of e[row][32*t + i]*v[i][d] over V blocks [32][head_dim]; e is at
     * most 127. */
    void (*weigh)(const struct integer_tiles *v, const uint8_t *const *e, int32_t *const *sums);
};

extern const struct lora_integer lora_integer_plain;
extern const struct lora_integer lora_integer_avx2;
extern const struct lora_integer lora_integer_avxvnni;
extern const struct lora_integer lora_integer_avx512vnni;

/* What these two need beyond AVX2, and beyond what the other loops for AVX-512 need. */
int lora_integer_avxvnni_supported(void);
int lora_integer_avx512vnni_supported(void);

const struct lora_integer *lora_integer_current(void);

#endif
