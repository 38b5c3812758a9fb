/* Elements of a checkpoint as FP16, nearest even, whatever the thread's rounding mode.
 * docs/numbers.md, 3.1. */
#include <stdio.h>
#include <math.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "pack.h"

typedef int convert(uint16_t *out, const uint8_t *in, uint64_t count);
typedef int copy_lines(uint16_t *out, const uint8_t *in, uint64_t stride, uint64_t lines);

struct variant {
    const char *name;
    convert *from_bf16, *from_f32;
    copy_lines *lines;
};

static int is_bad(uint16_t half) { return (half & PACK_EXPONENT) == PACK_EXPONENT; }

/* By integers alone: no instruction here looks at the rounding mode. */
static uint16_t half_of(uint32_t bits) {
    uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | PACK_EXPONENT); /* 65520 and more */
    uint32_t shift = 13, value = magnitude - 0x38000000u;
    if (magnitude < 0x38800000u) { /* below 2^-14: a subnormal of 2^-24 steps */
        uint32_t exponent = magnitude >> 23;
        if (exponent < 102) return (uint16_t)sign; /* below 2^-25 */
        shift = 126 - exponent;
        value = (magnitude & 0x7fffffu) | 0x800000u;
    }
    uint32_t half = value >> shift, rest = value & ((1u << shift) - 1), middle = 1u << (shift - 1);
    half += rest > middle || (rest == middle && (half & 1));
    return (uint16_t)(sign | half);
}

static uint32_t f32_bits(const uint8_t *at) {
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    return bits;
}

static uint32_t u16_bits(const uint8_t *at) {
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return bits;
}

static int plain_bf16(uint16_t *out, const uint8_t *in, uint64_t count) {
    int bad = 0;
    for (uint64_t i = 0; i < count; i++)
        bad |= is_bad(out[i] = half_of(u16_bits(in + 2 * i) << 16));
    return bad;
}

static int plain_f32(uint16_t *out, const uint8_t *in, uint64_t count) {
    int bad = 0;
    for (uint64_t i = 0; i < count; i++) bad |= is_bad(out[i] = half_of(f32_bits(in + 4 * i)));
    return bad;
}

static int plain_lines(uint16_t *out, const uint8_t *in, uint64_t stride, uint64_t lines) {
    int bad = 0;
    for (uint64_t i = 0; i < lines; i++) bad |= pack_copy(out + i * PACK_COPY, in + i * stride);
    return bad;
}

static const struct variant plain = {"plain", plain_bf16, plain_f32, plain_lines};

#if defined(__x86_64__)
#define F16C __attribute__((target("avx2,f16c")))
#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

F16C static inline __m128i store_eight(uint16_t *out, __m256 values, __m128i bad) {
    const __m128i exponent = _mm_set1_epi16(PACK_EXPONENT);
    __m128i halves = _mm256_cvtps_ph(values, NEAREST);
    _mm_storeu_si128((__m128i *)(void *)out, halves);
    return _mm_or_si128(bad, _mm_cmpeq_epi16(_mm_and_si128(halves, exponent), exponent));
}

F16C static int f16c_f32(uint16_t *out, const uint8_t *in, uint64_t count) {
    uint64_t whole = count & ~7ull;
    __m128i bad = _mm_setzero_si128();
    for (uint64_t i = 0; i < whole; i += 8)
        bad = store_eight(out + i, _mm256_loadu_ps((const float *)(const void *)(in + 4 * i)), bad);
    return _mm_movemask_epi8(bad) | plain_f32(out + whole, in + 4 * whole, count - whole);
}

F16C static int f16c_bf16(uint16_t *out, const uint8_t *in, uint64_t count) {
    uint64_t whole = count & ~7ull;
    __m128i bad = _mm_setzero_si128();
    for (uint64_t i = 0; i < whole; i += 8) {
        __m128i raw = _mm_loadu_si128((const __m128i *)(const void *)(in + 2 * i));
        __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16);
        bad = store_eight(out + i, _mm256_castsi256_ps(wide), bad);
    }
    return _mm_movemask_epi8(bad) | plain_bf16(out + whole, in + 2 * whole, count - whole);
}

/* Loading spends its time here, and waits for the file's lines: no more instructions than
 * needed. */
F16C static int f16c_lines(uint16_t *out, const uint8_t *in, uint64_t stride, uint64_t lines) {
    const __m256i magnitude = _mm256_set1_epi16(0x7fff);
    __m256i max = _mm256_setzero_si256();
    for (const uint8_t *end = in + lines * stride; in != end; in += stride, out += PACK_COPY) {
        __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)in);
        __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(in + 32));
        /* Lines are too far apart for the hardware's; into the second cache as many as come. */
        __builtin_prefetch(in + PACK_PREFETCH * stride, 0, 2);
        max = _mm256_max_epi16(max, _mm256_and_si256(low, magnitude));
        max = _mm256_max_epi16(max, _mm256_and_si256(high, magnitude));
        _mm256_storeu_si256((__m256i *)(void *)out, low);
        _mm256_storeu_si256((__m256i *)(void *)(out + 16), high);
    }
    return _mm256_movemask_epi8(_mm256_cmpgt_epi16(max, _mm256_set1_epi16(PACK_EXPONENT - 1)));
}

static const struct variant f16c = {"f16c", f16c_bf16, f16c_f32, f16c_lines};
#endif

static _Atomic(const struct variant *) current;

static const struct variant *fastest(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) return &f16c;
#endif
    return &plain;
}

static const struct variant *chosen(void) {
    const struct variant *found = atomic_load(&current);
    if (!found) atomic_store(&current, found = fastest());
    return found;
}

const char *lora_pack_variant(void) { return chosen()->name; }

int lora_pack_force(const char *variant) {
    const struct variant *found = variant ? NULL : fastest();
    if (variant && !strcmp(variant, plain.name)) found = &plain;
    if (variant && !strcmp(variant, fastest()->name)) found = fastest();
    if (!found) return -1;
    atomic_store(&current, found);
    return 0;
}

static int plain_f16(uint16_t *out, const uint8_t *in, uint64_t count) {
    int bad = 0;
    for (uint64_t i = 0; i < count; i++) bad |= is_bad(out[i] = (uint16_t)u16_bits(in + 2 * i));
    return bad;
}

static int copy_f16(uint16_t *out, const uint8_t *in, uint64_t count) {
    uint64_t whole = count & ~(PACK_COPY - 1ull);
    int bad = 0;
    for (uint64_t i = 0; i < whole; i += PACK_COPY) bad |= pack_copy(out + i, in + 2 * i);
    return bad | plain_f16(out + whole, in + 2 * whole, count - whole);
}

int pack_lines(uint16_t *out, const uint8_t *in, uint64_t stride, uint64_t lines) {
    return chosen()->lines(out, in, stride, lines);
}

int pack_halves(uint16_t *out, const uint8_t *in, uint64_t count, uint32_t element) {
    if (element == LORA_SOURCE_F16) return copy_f16(out, in, count);
    return (element == LORA_SOURCE_F32 ? chosen()->from_f32 : chosen()->from_bf16)(out, in, count);
}

static double widened(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint64_t pack_find_bad(const uint8_t *in, uint64_t count, uint32_t element, double *value) {
    for (uint64_t i = 0; i < count; i++) {
        if (element == LORA_SOURCE_F16) {
            uint32_t half = u16_bits(in + 2 * i);
            if (!is_bad((uint16_t)half)) continue;
            *value = widened((half & 0x8000u) << 16 | 0x7f800000u | (half & 0x3ffu) << 13);
            return i;
        }
        uint32_t bits = element == LORA_SOURCE_F32 ? f32_bits(in + 4 * i)
                                                   : u16_bits(in + 2 * i) << 16;
        *value = widened(bits);
        if (is_bad(half_of(bits))) return i;
    }
    return count;
}

int pack_refuse(const struct lora_pack_part *part, uint64_t row, uint64_t column, double value,
                struct lora_failure *failure) {
    char where[48]; /* a vector is a tensor of one row */
    if (part->rows == 1) snprintf(where, sizeof where, "%" PRIu64, column);
    else snprintf(where, sizeof where, "%" PRIu64 ", %" PRIu64, row, column);
    char said[96];
    if (isfinite(value))
        snprintf(said, sizeof said, "%g, out of FP16's range: expected magnitudes below 65520",
                 value);
    else
        snprintf(said, sizeof said, "%s, expected a finite number",
                 isnan(value) ? "nan"
                 : value > 0  ? "inf"
                              : "-inf");
    return lora_fail(failure, LORA_ERR_NAN, "%.120s: weight [%s] is %s",
                     part->name ? part->name : "?", where, said);
}
