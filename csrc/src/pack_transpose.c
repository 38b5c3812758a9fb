/* Weight blocks from 32 columns that lie one after another. */
#include "pack.h"

#if defined(__SSE2__)
/* Eight columns of eight rows: SSE2 is part of every x86-64. Returns the maximum magnitudes. */
static inline __m128i eight_by_eight(uint16_t *out, const uint8_t *in, uint64_t stride,
                                     __m128i max) {
    __m128i row[8], pair[8];
    for (int i = 0; i < 8; i++) {
        row[i] = _mm_loadu_si128((const __m128i *)(const void *)(in + (uint64_t)i * stride));
        max = _mm_max_epi16(max, _mm_and_si128(row[i], _mm_set1_epi16(0x7fff)));
    }
    for (int i = 0; i < 4; i++) {
        pair[2 * i] = _mm_unpacklo_epi16(row[2 * i], row[2 * i + 1]);
        pair[2 * i + 1] = _mm_unpackhi_epi16(row[2 * i], row[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) { /* pair: columns 2i, 2i+1 -> row: columns 4i .. 4i+3 */
        const __m128i *from = pair + 4 * i;
        row[4 * i] = _mm_unpacklo_epi32(from[0], from[2]);
        row[4 * i + 1] = _mm_unpackhi_epi32(from[0], from[2]);
        row[4 * i + 2] = _mm_unpacklo_epi32(from[1], from[3]);
        row[4 * i + 3] = _mm_unpackhi_epi32(from[1], from[3]);
    }
    for (int i = 0; i < 4; i++) {
        __m128i low = _mm_unpacklo_epi64(row[i], row[i + 4]);
        __m128i high = _mm_unpackhi_epi64(row[i], row[i + 4]);
        _mm_storeu_si128((__m128i *)(void *)(out + (2 * i) * LORA_BLOCK_N), low);
        _mm_storeu_si128((__m128i *)(void *)(out + (2 * i + 1) * LORA_BLOCK_N), high);
    }
    return max;
}

int pack_transpose(uint16_t *block, const uint8_t *columns, uint64_t stride) {
    __m128i max = _mm_setzero_si128();
    for (uint64_t k = 0; k < LORA_BLOCK_K; k += 8)
        for (uint64_t n = 0; n < LORA_BLOCK_N; n += 8) {
            const uint8_t *at = columns + n * stride + 2 * k;
            if (k % 32 == 0) /* one line of each column, of the block behind this one */
                for (uint64_t i = 0; i < 8; i++)
                    __builtin_prefetch(at + i * stride + 2 * LORA_BLOCK_K);
            max = eight_by_eight(block + k * LORA_BLOCK_N + n, at, stride, max);
        }
    return _mm_movemask_epi8(_mm_cmpgt_epi16(max, _mm_set1_epi16(PACK_EXPONENT - 1)));
}

/* Sixteen columns of sixteen rows: each step puts row i beside row i + 8. */
static void sixteen_bytes(uint8_t *out, const uint8_t *in, uint64_t stride) {
    __m128i row[16], next[16];
    for (int i = 0; i < 16; i++)
        row[i] = _mm_loadu_si128((const __m128i *)(const void *)(in + (uint64_t)i * stride));
    for (int step = 0; step < 4; step++) {
        for (int i = 0; i < 8; i++) {
            next[2 * i] = _mm_unpacklo_epi8(row[i], row[i + 8]);
            next[2 * i + 1] = _mm_unpackhi_epi8(row[i], row[i + 8]);
        }
        for (int i = 0; i < 16; i++) row[i] = next[i];
    }
    for (int i = 0; i < 16; i++)
        _mm_storeu_si128((__m128i *)(void *)(out + i * LORA_BLOCK_N), row[i]);
}

void pack_transpose_bytes(uint8_t *rows, const int8_t *columns, uint64_t stride) {
    for (uint64_t k = 0; k < LORA_BLOCK_K; k += 16)
        for (uint64_t n = 0; n < LORA_BLOCK_N; n += 16)
            sixteen_bytes(rows + k * LORA_BLOCK_N + n, (const uint8_t *)columns + n * stride + k,
                          stride);
}
#else
void pack_transpose_bytes(uint8_t *rows, const int8_t *columns, uint64_t stride) {
    for (uint64_t k = 0; k < LORA_BLOCK_K; k++)
        for (uint64_t n = 0; n < LORA_BLOCK_N; n++)
            rows[k * LORA_BLOCK_N + n] = (uint8_t)columns[n * stride + k];
}

int pack_transpose(uint16_t *block, const uint8_t *columns, uint64_t stride) {
    int bad = 0;
    for (uint64_t k = 0; k < LORA_BLOCK_K; k++)
        for (uint64_t n = 0; n < LORA_BLOCK_N; n++) {
            uint16_t half;
            memcpy(&half, columns + n * stride + 2 * k, sizeof half);
            block[k * LORA_BLOCK_N + n] = half;
            bad |= (half & PACK_EXPONENT) == PACK_EXPONENT;
        }
    return bad;
}
#endif
