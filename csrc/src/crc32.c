/* CRC-32 as zlib's: polynomial 0xedb88320, reflected. Eight bytes at a time by tables (slicing by
 * 8), or 16 to 256 by carry-less multiplication where the processor has it. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "crc32_fold.h"
#include "lora/abi.h"
#include "lora/crc32.h"
#include "lora/host.h"

static uint32_t table[8][256];
#if defined(__x86_64__)
#define FOLD_MIN 16
static int can_fold;
static crc32_loop *wide;
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
            table[slice][byte] = (table[slice - 1][byte] >> 8) ^
                                 table[0][table[slice - 1][byte] & 0xff];
#if defined(__x86_64__)
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    wide = crc32_wide(0);
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
/* bytes: in sixteens, one at least. */
CRC_FOLDED static uint32_t folded(uint32_t crc, const uint8_t *at, uint64_t bytes) {
    if (bytes < 64) {
        __m128i sum = _mm_xor_si128(crc32_load(at), _mm_cvtsi32_si128((int)crc));
        return crc32_finish(sum, at + 16, bytes - 16);
    }
    __m128i lane[4] = {crc32_load(at), crc32_load(at + 16), crc32_load(at + 32),
                       crc32_load(at + 48)};
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)crc));
    for (at += 64, bytes -= 64; bytes >= 64; at += 64, bytes -= 64)
        for (int i = 0; i < 4; i++)
            lane[i] = crc32_fold(lane[i], CRC_BY_512, crc32_load(at + 16 * i));
    for (int i = 1; i < 4; i++) lane[0] = crc32_fold(lane[0], CRC_BY_128, lane[i]);
    return crc32_finish(lane[0], at, bytes);
}
#endif

static void prepare(void) {
    if (!atomic_load_explicit(&ready, memory_order_acquire)) pthread_once(&table_made, make_table);
}

static uint32_t by_tables(uint32_t crc, const uint8_t *at, uint64_t bytes) {
    for (; bytes >= 8; bytes -= 8, at += 8) crc = eight_bytes(crc, at);
    for (; bytes > 0; bytes--, at++) crc = (crc >> 8) ^ table[0][(crc ^ *at) & 0xff];
    return crc;
}

uint32_t lora_crc32(uint32_t crc, const void *data, uint64_t bytes) {
    const uint8_t *at = data;
    prepare();
    crc = ~crc;
#if defined(__x86_64__)
    if (can_fold && bytes >= FOLD_MIN) {
        uint64_t whole = bytes & ~15ull;
        crc = (wide && whole >= CRC_WIDE_MIN ? wide : folded)(crc, at, whole);
        at += whole;
        bytes -= whole;
    }
#endif
    return ~by_tables(crc, at, bytes);
}

#if defined(__x86_64__)
CRC_FOLDED static uint32_t folded_without(const uint8_t *from, uint64_t bytes, uint32_t at) {
    const __m128i lanes = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m128i hidden = _mm_cmpeq_epi8(lanes, _mm_set1_epi8((char)(at - 16)));
    __m128i sum = _mm_xor_si128(crc32_load(from), _mm_cvtsi32_si128(~0));
    sum = crc32_fold(sum, CRC_BY_128, _mm_andnot_si128(hidden, crc32_load(from + 16)));
    return crc32_finish(sum, from + 32, bytes - 32);
}
#endif

uint32_t lora_crc32_without(const void *data, uint64_t bytes, uint32_t at) {
    const uint8_t *from = data, zero = 0;
    prepare();
#if defined(__x86_64__)
    if (can_fold && bytes >= 32) {
        uint64_t whole = bytes < CRC_WIDE_MIN ? bytes & ~15ull : 32;
        uint32_t sum = folded_without(from, whole, at);
        if (whole == 32) return lora_crc32(~sum, from + 32, bytes - 32);
        return ~by_tables(sum, from + whole, bytes - whole);
    }
#endif
    uint32_t crc = by_tables(by_tables(~0u, from, at), &zero, 1);
    return ~by_tables(crc, from + at + 1, bytes - at - 1);
}
