/* The table of native kernels, and the choice of their inner loops. */
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "lora/native.h"
#include "variant.h"

static const struct lora_variant *const variants[] = {
    &lora_variant_plain,
#if defined(__x86_64__)
    &lora_variant_avx2,
    &lora_variant_avx512,
#endif
};
#define VARIANTS (sizeof(variants) / sizeof(variants[0]))

static _Atomic(const struct lora_variant *) current;

const char *lora_native_variant(uint32_t index) {
    return index < VARIANTS ? variants[index]->name : NULL;
}

int lora_native_supported(uint32_t index) {
    return index < VARIANTS && variants[index]->supported();
}

int lora_native_force(const char *variant) {
    const struct lora_variant *found = NULL;
    for (uint32_t i = 0; variant && i < VARIANTS; i++)
        if (strcmp(variants[i]->name, variant) == 0 && variants[i]->supported())
            found = variants[i];
    if (variant && !found)
        return -1;
    atomic_store(&current, found);
    return 0;
}

const struct lora_variant *lora_variant_current(void) {
    const struct lora_variant *found = atomic_load(&current);
    if (!found) {
        for (uint32_t i = 0; i < VARIANTS; i++)
            if (variants[i]->supported())
                found = variants[i];
        atomic_store(&current, found);
    }
    return found;
}

const char *lora_native_current(void) {
    return lora_variant_current()->name;
}

const struct lora_kernels lora_kernels_native = {
    .size = sizeof(struct lora_kernels),
    .name = "native",
    .matrix = lora_native_matrix,
    .vector = lora_native_vector,
    .attention = lora_native_attention,
    .adapter = lora_native_adapter,
    .batch = lora_native_batch,
};
