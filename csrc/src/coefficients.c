/* Made by tools/make_coefficients.py: the coefficients by name, for Python. */
#include "lora/coefficients.h"

#include <string.h>

#include "lora/constants.h"

static const struct lora_coefficient table[] = {
    {"exp_c", lora_exp_c, 7, sizeof(float)},
    {"log2e", &lora_log2e, 1, sizeof(float)},
    {"ln2_hi", &lora_ln2_hi, 1, sizeof(float)},
    {"ln2_lo", &lora_ln2_lo, 1, sizeof(float)},
    {"exp_min", &lora_exp_min, 1, sizeof(float)},
    {"exp_max", &lora_exp_max, 1, sizeof(float)},
    {"log2_c", lora_log2_c, 11, sizeof(double)},
    {"exp2_c", lora_exp2_c, 13, sizeof(double)},
    {"ln2", &lora_ln2, 1, sizeof(double)},
    {"sqrt_half", &lora_sqrt_half, 1, sizeof(double)},
    {"sin_c", lora_sin_c, 8, sizeof(double)},
    {"cos_c", lora_cos_c, 9, sizeof(double)},
    {"half_pi", lora_half_pi, 3, sizeof(double)},
    {"two_over_pi", &lora_two_over_pi, 1, sizeof(double)},
    {"gelu_tanh_a", lora_gelu_tanh_a, 1024, sizeof(float)},
    {"gelu_tanh_b", lora_gelu_tanh_b, 1024, sizeof(float)},
    {"gelu_erf_a", lora_gelu_erf_a, 1024, sizeof(float)},
    {"gelu_erf_b", lora_gelu_erf_b, 1024, sizeof(float)},
    {"tanh_c", lora_tanh_c, 5, sizeof(float)},
};

const struct lora_coefficient *lora_coefficient_find(const char *name) {
    for (uint32_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}
