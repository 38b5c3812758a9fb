/* Matmuls of many rows of INT8 activations for AVX2: weights are expanded once for all rows. Every
 * sum is exact, so the bytes are those of integer_matrix.h. For integer_avx2.c alone, after that
 * one. */
#ifndef LORA_KERNELS_INTEGER_MANY_AVX2_H
#define LORA_KERNELS_INTEGER_MANY_AVX2_H

#define INT8_MANY 8 /* rows: from so many on, expanding pays */
#define INT4_MANY 4
#define MANY_AT_ONCE 2
#define BLOCK_PAIRS (LORA_BLOCK_K / 2)
#define PAIRS_AT_ONCE 8

/* Values of a row as words: of every four the even ones, then the odd ones, as weights have them.
 * `stride` words from one block of K to the next. */
LANES_TARGET static void spread(const int8_t *x, uint32_t blocks, uint64_t stride, int16_t *words) {
    for (uint32_t b = 0; b < blocks; b++, words += stride)
        for (int k = 0; k < LORA_BLOCK_K; k += VEC_BYTES, x += VEC_BYTES) {
            vec values = load_vec((const uint8_t *)x);
            vec even = even_words(values), odd = odd_words(values);
            vec low = _mm256_unpacklo_epi32(even, odd), high = _mm256_unpackhi_epi32(even, odd);
            __m256i *to = (__m256i *)(void *)(words + k);
            _mm256_storeu_si256(to, _mm256_permute2x128_si256(low, high, 0x20));
            _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(low, high, 0x31));
        }
}

/* What stays in a register: GCC would read shared weights again for each row, and order integer
 * sums so that they need more registers than there are. */
LANES_INLINE vec kept(vec v) {
    __asm__("" : "+x"(v));
    return v;
}

/* A block of INT8 weights as words: [BLOCK_PAIRS][VECTORS] vectors of pairs. */
LANES_INLINE void expand_words(const uint8_t *block, const uint8_t *prefetch, uint8_t *pairs) {
    for (int q = 0; q < QUADS; q++, pairs += 2 * TILE_BYTES) {
        fetch_quad(prefetch + q * QUAD_BYTES);
        UNROLLED
        for (int v = 0; v < VECTORS; v++) {
            vec weights = load_vec(block + q * QUAD_BYTES + v * VEC_BYTES);
            store_vec(pairs + v * VEC_BYTES, even_words(weights));
            store_vec(pairs + TILE_BYTES + v * VEC_BYTES, odd_words(weights));
        }
    }
}

/* One pair of columns of `rows` rows, a constant. */
LANES_INLINE void add_pair(const uint8_t *pairs, const int16_t *x, const int rows, vec *sum) {
    vec value[MANY_AT_ONCE];
    UNROLLED
    for (int r = 0; r < rows; r++) value[r] = quad((const int8_t *)(x + r * LORA_BLOCK_K));
    UNROLLED
    for (int v = 0; v < VECTORS; v++) {
        vec weights = kept(load_vec(pairs + v * VEC_BYTES));
        UNROLLED
        for (int r = 0; r < rows; r++) {
            vec *to = sum + r * VECTORS + v;
            *to = kept(add_vec(*to, _mm256_madd_epi16(weights, value[r])));
        }
    }
}

/* One block of `rows` rows, a constant: sums[rows][32] go on. */
LANES_INLINE void add_words(const uint8_t *pairs, const int16_t *x, const int rows, int32_t *sums) {
    vec sum[MANY_AT_ONCE * VECTORS];
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) sum[i] = load_vec((uint8_t *)(sums + i * LANES));
    for (int p = 0; p < BLOCK_PAIRS; p += PAIRS_AT_ONCE, pairs += PAIRS_AT_ONCE * TILE_BYTES) {
        UNROLLED
        for (int i = 0; i < PAIRS_AT_ONCE; i++)
            add_pair(pairs + i * TILE_BYTES, x + 2 * (p + i), rows, sum);
    }
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) store_vec((uint8_t *)(sums + i * LANES), sum[i]);
}

LANES_TARGET static void int8_many(const struct integer_tile *t) {
    _Alignas(LORA_LINE_BYTES) uint8_t pairs[BLOCK_PAIRS * TILE_BYTES];
    _Alignas(LORA_LINE_BYTES) int32_t sums[LORA_MAX_ROWS * LORA_BLOCK_N];
    const int16_t *x = t->words;
    memset(sums, 0, t->rows * LORA_BLOCK_N * sizeof(int32_t));
    for (uint32_t b = 0; b < t->block_count; b++) {
        uint32_t row = 0;
        expand_words(t->blocks[b], integer_prefetched(t, b + INT8_PREFETCH), pairs);
        for (; row + MANY_AT_ONCE <= t->rows; row += MANY_AT_ONCE, x += MANY_AT_ONCE * LORA_BLOCK_K)
            add_words(pairs, x, MANY_AT_ONCE, sums + row * LORA_BLOCK_N);
        for (; row < t->rows; row++, x += LORA_BLOCK_K)
            add_words(pairs, x, 1, sums + row * LORA_BLOCK_N);
    }
    for (uint32_t i = 0; i < t->rows * LORA_BLOCK_N; i += LANES)
        store_floats(t->out + i, to_floats(load_vec((uint8_t *)(sums + i))));
}

/* One unit of K: words hold eight times two products of 15*128 at most, without overflow. */
LANES_INLINE void add_unit(const uint8_t *bytes, const int8_t *x, uint64_t stride, const int rows,
                           vec *sum) {
    vec words[MANY_AT_ONCE * VECTORS];
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++) words[i] = zero_vec();
    UNROLLED
    for (int q = 0; q < UNIT_QUADS; q++) {
        vec value[MANY_AT_ONCE];
        UNROLLED
        for (int r = 0; r < rows; r++) value[r] = quad(x + (uint64_t)r * stride + 4 * q);
        UNROLLED
        for (int v = 0; v < VECTORS; v++) {
            vec weights = kept(load_vec(bytes + q * TILE_BYTES + v * VEC_BYTES));
            UNROLLED
            for (int r = 0; r < rows; r++) {
                vec *to = words + r * VECTORS + v;
                *to = kept(_mm256_add_epi16(*to, _mm256_maddubs_epi16(weights, value[r])));
            }
        }
    }
    UNROLLED
    for (int i = 0; i < rows * VECTORS; i++)
        sum[i] = add_vec(sum[i], _mm256_madd_epi16(words[i], _mm256_set1_epi16(1)));
}

#include "integer_many.h"

LANES_TARGET static void int8_tile(const struct integer_tile *t) {
    if (t->words) int8_many(t);
    else int8(t);
}

LANES_TARGET static void int4_tile(const struct integer_tile *t) {
    if (t->rows >= INT4_MANY) int4_many(t);
    else int4(t);
}

#endif
