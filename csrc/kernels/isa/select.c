/* The choice of inner loops: the fastest set that this machine supports, or a forced one. */
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "integer.h"
#include "lora/native.h"
#include "variant.h"

/* One set of loops. A machine takes the last one that it supports. Integer loops are listed
 * separately: some machines have instructions for them alone. */
struct kernel_set {
    const char *name;
    const struct lora_variant *floats;
    const struct lora_integer *integers;
    int (*supported)(void); /* what the integer loops need beyond the others; NULL nothing */
};

static const struct kernel_set sets[] = {
    {"plain", &lora_variant_plain, &lora_integer_plain, NULL},
#if defined(__x86_64__)
    {"avx2", &lora_variant_avx2, &lora_integer_avx2, NULL},
#if LORA_HAS_AVXVNNI
    {"avx2-vnni", &lora_variant_avx2, &lora_integer_avxvnni, lora_integer_avxvnni_supported},
#endif
    {"avx512", &lora_variant_avx512, &lora_integer_avx2, NULL},
    {"avx512-vnni", &lora_variant_avx512, &lora_integer_avx512vnni,
     lora_integer_avx512vnni_supported},
#endif
};
#define SETS (sizeof(sets) / sizeof(sets[0]))

static _Atomic(const struct kernel_set *) current;

static int is_supported(const struct kernel_set *set) {
    return set->floats->supported() && (!set->supported || set->supported());
}

const char *lora_native_variant(uint32_t index) { return index < SETS ? sets[index].name : NULL; }

int lora_native_supported(uint32_t index) { return index < SETS && is_supported(&sets[index]); }

int lora_native_force(const char *variant) {
    const struct kernel_set *found = NULL;
    for (uint32_t i = 0; variant && i < SETS; i++)
        if (strcmp(sets[i].name, variant) == 0 && is_supported(&sets[i])) found = &sets[i];
    if (variant && !found) return -1;
    atomic_store(&current, found);
    return 0;
}

static const struct kernel_set *current_set(void) {
    const struct kernel_set *found = atomic_load(&current);
    if (!found) {
        for (uint32_t i = 0; i < SETS; i++)
            if (is_supported(&sets[i])) found = &sets[i];
        atomic_store(&current, found);
    }
    return found;
}

const struct lora_variant *lora_variant_current(void) { return current_set()->floats; }

const struct lora_integer *lora_integer_current(void) { return current_set()->integers; }

const char *lora_native_current(void) { return current_set()->name; }
