/* Rotary tables: 2^23 sines and cosines of a long context, some at a time. */
#include <string.h>

#include "lora/coefficients.h"
#include "lora/float_mode.h"
#include "lora/opening.h"

#define WIDE 64
#define TO_WHOLE                                                                                   \
    0x1.8p52 /* a number below 2^51 plus this is rounded to a whole one, ties to even */

static inline double horner(const double *table, uint32_t count, double x) {
    double p = table[0];
    for (uint32_t i = 1; i < count; i++) p = p * x + table[i];
    return p;
}

/* docs/numbers.md, 4.5, for x of up to WIDE angles; times factor, in FP64. */
static inline void turn(const float *angle, uint32_t count, double factor, float *cosine,
                        float *sine) {
    for (uint32_t i = 0; i < count; i++) {
        double x = (double)angle[i], whole = x * lora_two_over_pi + TO_WHOLE;
        uint64_t bits;
        memcpy(&bits, &whole, 8);
        double n = whole - TO_WHOLE;
        double r = ((x - n * lora_half_pi[0]) - n * lora_half_pi[1]) - n * lora_half_pi[2];
        double square = r * r;
        double s = r * horner(lora_sin_c, 8, square), c = horner(lora_cos_c, 9, square);
        uint64_t swap = 0 - (bits & 1), a, b;
        memcpy(&a, &s, 8);
        memcpy(&b, &c, 8);
        uint64_t change = (a ^ b) & swap;
        a = a ^ change ^ (bits & 2) << 62;
        b = b ^ change ^ ((bits + 1) & 2) << 62;
        memcpy(&s, &a, 8);
        memcpy(&c, &b, 8);
        cosine[i] = (float)(c * factor);
        sine[i] = (float)(s * factor);
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void turn_avx2(const float *angle, uint32_t count,
                                                      double factor, float *cosine, float *sine) {
    turn(angle, count, factor, cosine, sine);
}
#endif

static void turn_plain(const float *angle, uint32_t count, double factor, float *cosine,
                       float *sine) {
    turn(angle, count, factor, cosine, sine);
}

typedef void turning(const float *, uint32_t, double, float *, float *);

static turning *best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return turn_avx2;
#endif
    return turn_plain;
}

void lora_rope_table(const float *inverse, uint32_t rotated, uint32_t half, uint64_t positions,
                     double factor, float *table) {
    uint64_t mode = float_mode_set();
    turning *turns = best();
    for (uint64_t position = 0; position < positions; position++) {
        float *cosine = table + position * 2 * half, *sine = cosine + half, angle[WIDE];
        for (uint32_t from = 0; from < rotated; from += WIDE) {
            uint32_t count = rotated - from < WIDE ? rotated - from : WIDE;
            for (uint32_t i = 0; i < count; i++) angle[i] = (float)position * inverse[from + i];
            turns(angle, count, factor, cosine + from, sine + from);
        }
        for (uint32_t i = rotated; i < half; i++) cosine[i] = 1, sine[i] = 0;
    }
    float_mode_restore(mode);
}
