#include "gelu_halves.h"

#include <pthread.h>

#include "isa/exponential.h"
#include "isa/half.h"
#include "lora/coefficients.h"

#define HALVES 65536
#define EXPONENT 0x7c00

static uint16_t by_tanh[HALVES], by_erf[HALVES];
static pthread_once_t tanh_made = PTHREAD_ONCE_INIT, erf_made = PTHREAD_ONCE_INIT;

static void make(uint16_t *table, const float *a, const float *b) {
    for (uint32_t bits = 0; bits < HALVES; bits++)
        table[bits] = float_to_half(gelu32(half_to_float((uint16_t)bits), a, b));
}

static void make_tanh(void) { make(by_tanh, lora_gelu_tanh_a, lora_gelu_tanh_b); }
static void make_erf(void) { make(by_erf, lora_gelu_erf_a, lora_gelu_erf_b); }

const uint16_t *lora_gelu_tanh_halves(void) {
    pthread_once(&tanh_made, make_tanh);
    return by_tanh;
}

const uint16_t *lora_gelu_erf_halves(void) {
    pthread_once(&erf_made, make_erf);
    return by_erf;
}

uint32_t lora_gelu_by_table(const uint16_t *table, const uint16_t *x, uint32_t count, uint16_t *y) {
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; i++) y[i] = table[x[i]];
    for (uint32_t i = 0; i < count; i++) bad += (y[i] & EXPONENT) == EXPONENT;
    return bad;
}
