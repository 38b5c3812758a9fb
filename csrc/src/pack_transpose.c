/* A weight block from 32 columns that lie one after another. */
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "pack.h"

#if defined(__SSE2__)
/* Eight columns of eight rows: SSE2 is part of every x86-64. */
static void eight_by_eight(uint16_t *out, const uint16_t *in) {
    __m128i row[8], pair[8];
    for (int i = 0; i < 8; i++)
        row[i] = _mm_loadu_si128((const __m128i *)(const void *)(in + i * LORA_BLOCK_K));
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
}
#else
static void eight_by_eight(uint16_t *out, const uint16_t *in) {
    for (int k = 0; k < 8; k++)
        for (int n = 0; n < 8; n++) out[k * LORA_BLOCK_N + n] = in[n * LORA_BLOCK_K + k];
}
#endif

void pack_transpose(uint16_t *block, const uint16_t *columns) {
    for (int k = 0; k < LORA_BLOCK_K; k += 8)
        for (int n = 0; n < LORA_BLOCK_N; n += 8)
            eight_by_eight(block + k * LORA_BLOCK_N + n, columns + n * LORA_BLOCK_K + k);
}
