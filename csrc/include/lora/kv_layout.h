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

/* How many layers a KV_COMMIT is of; 0: the list does not have all of them. */
static inline int kv_commit_layers(const struct lora_list *list,
                                   const struct lora_kv_commit *command, uint32_t *layers) {
    if (command->kv_layer > list->kv_layers) return 0;
    *layers = command->layers ? command->layers : (uint32_t)list->kv_layers - command->kv_layer;
    return command->kv_layer + *layers <= list->kv_layers;
}

/* Banks of pages: those of the weights, or those that take what these cannot (abi.h). */
struct kv_pool {
    uint32_t bank_first, bank_count, first_page, line;
};

static inline struct kv_pool kv_pool_of(const struct lora_list *list, uint32_t page) {
    if (list->kv_spill_bank_count > 0 && page >= list->kv_spill_page)
        return (struct kv_pool){list->kv_spill_bank_first, list->kv_spill_bank_count,
                                list->kv_spill_page, list->kv_spill_line};
    return (struct kv_pool){list->kv_bank_first, list->kv_bank_count, 0, list->kv_line};
}

struct kv_place {
    uint32_t bank;
    uint64_t offset, bytes;
};

/* Where K (v = 0) or V (v = 1) of a page, layer and head lies. The pools must have banks. */
static inline struct kv_place kv_block_place(const struct lora_list *list, uint32_t page,
                                             uint32_t layer, uint32_t head, uint32_t v) {
    struct kv_pool pool = kv_pool_of(list, page);
    uint64_t page_stride = ((uint64_t)list->kv_layers * list->kv_heads * 2) | 1;
    uint64_t number = (page - pool.first_page) * page_stride +
                      ((uint64_t)layer * list->kv_heads + head) * 2 + v;
    uint64_t bytes = (uint64_t)kv_block_lines(list) * LORA_LINE_BYTES;
    uint64_t start = (uint64_t)pool.line * LORA_LINE_BYTES;
    return (struct kv_place){pool.bank_first + (uint32_t)(number % pool.bank_count),
                             start + number / pool.bank_count * bytes, bytes};
}

#endif
