/* The tables of coefficients.h by name, so that Python reads the very bits that C uses. */
#ifndef LORA_CONSTANTS_H
#define LORA_CONSTANTS_H

#include <stdint.h>

struct lora_coefficient {
    const char *name;
    const void *values;
    uint32_t count;
    uint32_t element_bytes; /* 4 float, 8 double */
};
/* By the name without "lora_"; NULL when there is none. */
const struct lora_coefficient *lora_coefficient_find(const char *name);

#endif
