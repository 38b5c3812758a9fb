/* CRC-32 by carry-less multiplication of two or four pairs at once: as fast as the first cache. */
#include "crc32_fold.h"

#if defined(__x86_64__)
#define TURN (uint64_t)CRC_WIDE_MIN
#define AVX2 __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.1")))
#define AVX512 __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

AVX2 static inline __m256i fold_two(__m256i sum, __m256i constants, __m256i next) {
    __m256i low = _mm256_clmulepi64_epi128(sum, constants, 0x00);
    __m256i high = _mm256_clmulepi64_epi128(sum, constants, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

AVX2 static inline __m256i load_two(const uint8_t *at) {
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

AVX2 static uint32_t wide_avx2(uint32_t crc, const uint8_t *at, uint64_t bytes) {
    const __m256i by = _mm256_broadcastsi128_si256(CRC_BY_2048);
    __m256i lane[8];
    for (int i = 0; i < 8; i++) lane[i] = load_two(at + 32 * i);
    lane[0] = _mm256_xor_si256(lane[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc)));
    for (at += TURN, bytes -= TURN; bytes >= TURN; at += TURN, bytes -= TURN)
        for (int i = 0; i < 8; i++) lane[i] = fold_two(lane[i], by, load_two(at + 32 * i));
    __m128i sum = _mm256_castsi256_si128(lane[0]);
    for (int i = 1; i < 16; i++) {
        __m128i next = i & 1 ? _mm256_extracti128_si256(lane[i / 2], 1)
                             : _mm256_castsi256_si128(lane[i / 2]);
        sum = crc32_fold(sum, CRC_BY_128, next);
    }
    return crc32_finish(sum, at, bytes);
}

AVX512 static inline __m512i fold_four(__m512i sum, __m512i constants, __m512i next) {
    __m512i low = _mm512_clmulepi64_epi128(sum, constants, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(sum, constants, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* all three, exclusive or */
}

AVX512 static uint32_t wide_avx512(uint32_t crc, const uint8_t *at, uint64_t bytes) {
    const __m512i by = _mm512_broadcast_i32x4(CRC_BY_2048);
    const __m512i by_one = _mm512_broadcast_i32x4(CRC_BY_512);
    __m512i lane[4];
    for (int i = 0; i < 4; i++) lane[i] = _mm512_loadu_si512(at + 64 * i);
    lane[0] = _mm512_xor_si512(lane[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (at += TURN, bytes -= TURN; bytes >= TURN; at += TURN, bytes -= TURN)
        for (int i = 0; i < 4; i++)
            lane[i] = fold_four(lane[i], by, _mm512_loadu_si512(at + 64 * i));
    for (int i = 1; i < 4; i++) lane[0] = fold_four(lane[0], by_one, lane[i]);
    __m128i sum = _mm512_castsi512_si128(lane[0]);
    sum = crc32_fold(sum, CRC_BY_128, _mm512_extracti32x4_epi32(lane[0], 1));
    sum = crc32_fold(sum, CRC_BY_128, _mm512_extracti32x4_epi32(lane[0], 2));
    sum = crc32_fold(sum, CRC_BY_128, _mm512_extracti32x4_epi32(lane[0], 3));
    return crc32_finish(sum, at, bytes);
}

crc32_loop *crc32_wide(uint32_t index) {
    crc32_loop *loops[3] = {0};
    uint32_t count = 0;
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul")) {
        if (__builtin_cpu_supports("avx512f")) loops[count++] = wide_avx512;
        if (__builtin_cpu_supports("avx2")) loops[count++] = wide_avx2;
    }
    return loops[index < count ? index : 2];
}
#endif
