/* CRC-32 as zlib's: polynomial 0xedb88320, reflected. Eight bytes a turn by tables (slicing by 8),
 * or 16 to 64 by carry-less multiplication where the processor has it. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "lora/abi.h"
#include "lora/transport.h"
#include "lora/host.h"

static uint32_t table[8][256];
#if defined(__x86_64__)
static int can_fold;
#endif
static pthread_once_t table_made = PTHREAD_ONCE_INIT;
static atomic_int ready; /* table_made, asked without a call */

static void make_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1)));
        table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int slice = 1; slice < 8; slice++)
            table[slice][byte] =
                (table[slice - 1][byte] >> 8) ^ table[0][table[slice - 1][byte] & 0xff];
#if defined(__x86_64__)
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
    atomic_store_explicit(&ready, 1, memory_order_release);
}

static uint32_t eight_bytes(uint32_t crc, const uint8_t *at) {
    uint32_t low, high;
    memcpy(&low, at, 4);
    memcpy(&high, at + 4, 4);
    low ^= crc;
    return table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
           table[4][low >> 24] ^ table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^
           table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
}

#if defined(__x86_64__)
/* Folding after Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"
 * (Intel, 2009), with its reflected constants for this polynomial. */
#define FOLDED __attribute__((target("pclmul,sse4.1")))
#define FOLD_LEAST 16

FOLDED static inline __m128i fold(__m128i sum, __m128i constants, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(sum, constants, 0x00);
    __m128i high = _mm_clmulepi64_si128(sum, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

FOLDED static inline __m128i load(const uint8_t *at) {
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

FOLDED static uint32_t reduce(__m128i sum, __m128i k3k4) {
    const __m128i even = _mm_setr_epi32(~0, 0, ~0, 0);
    const __m128i k5 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    __m128i high = _mm_clmulepi64_si128(sum, k3k4, 0x10);
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), high);
    high = _mm_srli_si128(sum, 4);
    sum = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, even), k5, 0x00), high);
    high = _mm_clmulepi64_si128(_mm_and_si128(sum, even), barrett, 0x10);
    high = _mm_clmulepi64_si128(_mm_and_si128(high, even), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, high), 1);
}

/* bytes: in sixteens, one at least. */
FOLDED static uint32_t folded(uint32_t crc, const uint8_t *at, uint64_t bytes) {
    const __m128i k1k2 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i k3k4 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    if (bytes < 64) {
        __m128i sum = _mm_xor_si128(load(at), _mm_cvtsi32_si128((int)crc));
        for (at += 16; bytes > 16; at += 16, bytes -= 16) sum = fold(sum, k3k4, load(at));
        return reduce(sum, k3k4);
    }
    __m128i lane[4] = {load(at), load(at + 16), load(at + 32), load(at + 48)};
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)crc));
    for (at += 64, bytes -= 64; bytes >= 64; at += 64, bytes -= 64)
        for (int i = 0; i < 4; i++) lane[i] = fold(lane[i], k1k2, load(at + 16 * i));
    for (int i = 1; i < 4; i++) lane[0] = fold(lane[0], k3k4, lane[i]);
    for (; bytes >= 16; at += 16, bytes -= 16) lane[0] = fold(lane[0], k3k4, load(at));
    return reduce(lane[0], k3k4);
}
#endif

uint32_t lora_crc32(uint32_t crc, const void *data, uint64_t bytes) {
    if (!atomic_load_explicit(&ready, memory_order_acquire)) pthread_once(&table_made, make_table);
    const uint8_t *at = data;
    crc = ~crc;
#if defined(__x86_64__)
    if (can_fold && bytes >= FOLD_LEAST) {
        uint64_t whole = bytes & ~15ull;
        crc = folded(crc, at, whole);
        at += whole;
        bytes -= whole;
    }
#endif
    for (; bytes >= 8; bytes -= 8, at += 8) crc = eight_bytes(crc, at);
    for (; bytes > 0; bytes--, at++) crc = (crc >> 8) ^ table[0][(crc ^ *at) & 0xff];
    return ~crc;
}
