/* A block of 32-bit words from 32 columns that lie one after another. */
#include "pack.h"

#define INT8_WORDS (LORA_BLOCK_K / 4)
#define INT4_WORDS (LORA_BLOCK_K / 8)

#if defined(__SSE2__) /* part of every x86-64 */
/* pack_spread of four words. */
static inline __m128i spread_four(__m128i words) {
    const __m128i bytes = _mm_set1_epi32(0x00ff00ff), nibbles = _mm_set1_epi32(0x0f0f0f0f);
    __m128i low = _mm_and_si128(words, _mm_set1_epi32(0xffff)), high = _mm_srli_epi32(words, 16);
    low = _mm_and_si128(_mm_or_si128(low, _mm_slli_epi32(low, 8)), bytes);
    high = _mm_and_si128(_mm_or_si128(high, _mm_slli_epi32(high, 8)), bytes);
    low = _mm_and_si128(_mm_or_si128(low, _mm_slli_epi32(low, 4)), nibbles);
    high = _mm_and_si128(_mm_or_si128(high, _mm_slli_epi32(high, 4)), nibbles);
    return _mm_or_si128(low, _mm_slli_epi32(high, 4));
}

/* Four words of four columns. */
static inline void four_by_four(uint32_t *out, const uint8_t *in, uint64_t stride, int spread) {
    __m128i row[4], pair[4];
    for (int i = 0; i < 4; i++) {
        row[i] = _mm_loadu_si128((const __m128i *)(const void *)(in + (uint64_t)i * stride));
        if (spread) row[i] = spread_four(row[i]);
    }
    for (int i = 0; i < 2; i++) {
        pair[2 * i] = _mm_unpacklo_epi32(row[2 * i], row[2 * i + 1]);
        pair[2 * i + 1] = _mm_unpackhi_epi32(row[2 * i], row[2 * i + 1]);
    }
    row[0] = _mm_unpacklo_epi64(pair[0], pair[2]);
    row[1] = _mm_unpackhi_epi64(pair[0], pair[2]);
    row[2] = _mm_unpacklo_epi64(pair[1], pair[3]);
    row[3] = _mm_unpackhi_epi64(pair[1], pair[3]);
    for (int i = 0; i < 4; i++)
        _mm_storeu_si128((__m128i *)(void *)(out + i * LORA_BLOCK_N), row[i]);
}

static inline void transpose(uint32_t *block, const uint8_t *columns, uint64_t stride,
                             uint64_t words, int spread) {
    for (uint64_t n = 0; n < LORA_BLOCK_N; n += 4) {
        const uint8_t *at = columns + n * stride;
        for (uint64_t i = 0; i < 4; i++) /* too many columns for the hardware's */
            for (uint64_t byte = 0; byte < 4 * words; byte += LORA_LINE_BYTES)
                __builtin_prefetch(at + i * stride + 4 * words + byte);
        for (uint64_t w = 0; w < words; w += 4)
            four_by_four(block + w * LORA_BLOCK_N + n, at + 4 * w, stride, spread);
    }
}
#else
static inline void transpose(uint32_t *block, const uint8_t *columns, uint64_t stride,
                             uint64_t words, int spread) {
    for (uint64_t n = 0; n < LORA_BLOCK_N; n++)
        for (uint64_t w = 0; w < words; w++) {
            uint32_t word;
            memcpy(&word, columns + n * stride + 4 * w, sizeof word);
            block[w * LORA_BLOCK_N + n] = spread ? pack_spread(word) : word;
        }
}
#endif

void pack_words_int8(uint32_t *block, const uint8_t *columns, uint64_t stride) {
    transpose(block, columns, stride, INT8_WORDS, 0);
}

void pack_words_int4(uint32_t *block, const uint8_t *columns, uint64_t stride) {
    transpose(block, columns, stride, INT4_WORDS, 1);
}
