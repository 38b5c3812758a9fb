/* Steps of CRC-32 by carry-less multiplication, after Gopal et al., "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ" (Intel, 2009). Constants that move a sum by d bits are
 * x^(d+32) and x^(d-32) modulo the polynomial, reflected. */
#ifndef LORA_CRC32_FOLD_H
#define LORA_CRC32_FOLD_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define CRC_FOLDED __attribute__((target("pclmul,sse4.1")))
#define CRC_BY_128 _mm_set_epi64x(0x0ccaa009e, 0x1751997d0)
#define CRC_BY_512 _mm_set_epi64x(0x1c6e41596, 0x154442bd4)
#define CRC_BY_2048 _mm_set_epi64x(0x1322d1430, 0x11542778a)

#define CRC_WIDE_MIN 256

/* crc32_wide.c: the loops that this processor has, the fastest first, NULL behind the last one.
 * They take and give the sum without its inversions; `bytes` are sixteens, CRC_WIDE_MIN at
 * least. */
typedef uint32_t crc32_loop(uint32_t crc, const uint8_t *at, uint64_t bytes);
crc32_loop *crc32_wide(uint32_t index);

CRC_FOLDED static inline __m128i crc32_fold(__m128i sum, __m128i constants, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(sum, constants, 0x00);
    __m128i high = _mm_clmulepi64_si128(sum, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

CRC_FOLDED static inline __m128i crc32_load(const uint8_t *at) {
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

CRC_FOLDED static inline uint32_t crc32_reduce(__m128i sum) {
    const __m128i even = _mm_setr_epi32(~0, 0, ~0, 0);
    const __m128i k5 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    __m128i high = _mm_clmulepi64_si128(sum, CRC_BY_128, 0x10);
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), high);
    high = _mm_srli_si128(sum, 4);
    sum = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, even), k5, 0x00), high);
    high = _mm_clmulepi64_si128(_mm_and_si128(sum, even), barrett, 0x10);
    high = _mm_clmulepi64_si128(_mm_and_si128(high, even), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, high), 1);
}

/* Sixteens behind those in `sum`, and the end. */
CRC_FOLDED static inline uint32_t crc32_finish(__m128i sum, const uint8_t *at, uint64_t bytes) {
    for (; bytes >= 16; at += 16, bytes -= 16) sum = crc32_fold(sum, CRC_BY_128, crc32_load(at));
    return crc32_reduce(sum);
}
#endif

#endif
