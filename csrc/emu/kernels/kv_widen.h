/* Blocks of KV_INT8_HEADS as attention reads them: FP16(FP32(value)*FP32(scale)). */
#ifndef LORA_KERNELS_KV_WIDEN_H
#define LORA_KERNELS_KV_WIDEN_H

#include <stdint.h>
#include <string.h>

#include "lora/abi.h"
#include "variant.h"

/* A whole block of K: wide[head_dim][32]. */
void lora_kv_widen_keys(const struct lora_variant *variant, const uint8_t *block,
                        uint32_t head_dim, uint16_t *wide);
/* One position of a block of V: wide[head_dim]. */
void lora_kv_widen_value(const struct lora_variant *variant, const uint8_t *block,
                         uint32_t head_dim, uint32_t lane, uint16_t *wide);

#endif
