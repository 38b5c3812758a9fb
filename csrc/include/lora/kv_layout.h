/* How a KV block is stored in bank memory, by the list's type of cache (abi.h, struct
 * lora_list). */
#ifndef LORA_KV_LAYOUT_H
#define LORA_KV_LAYOUT_H

#include <stdint.h>

#include "abi.h"

/* Bytes of one value of K or V. */
static inline uint32_t kv_element_bytes(const struct lora_list *list) {
    return list->kv_type == LORA_KV_FP16 ? 2 : 1;
}

/* Bytes before a block's scales, where it has any. */
static inline uint32_t kv_value_bytes(const struct lora_list *list) {
    return LORA_TILE_POSITIONS * list->head_dim * kv_element_bytes(list);
}

static inline uint32_t kv_block_lines(const struct lora_list *list) {
    return kv_value_bytes(list) / LORA_LINE_BYTES + (list->kv_type == LORA_KV_INT8_HEADS);
}

/* A type that there is, in blocks of whole lines. */
static inline int kv_type_right(const struct lora_list *list) {
    return list->kv_type == LORA_KV_FP16 ||
           (list->kv_type <= LORA_KV_INT8_HEADS && list->head_dim % 2 == 0);
}

/* Number of a block within the pool: bank kv_bank_first + number % kv_bank_count. */
static inline uint64_t kv_block_number(const struct lora_list *list, uint32_t page, uint32_t layer,
                                       uint32_t head, uint32_t v) {
    uint64_t page_stride = ((uint64_t)list->kv_layers * list->kv_heads * 2) | 1;
    return page * page_stride + ((uint64_t)layer * list->kv_heads + head) * 2 + v;
}

#endif
