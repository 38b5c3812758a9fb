/* Sizes of what a recurrence reads and keeps (abi.h, struct lora_recurrence). The command's heads
 * and columns must be within their limits. */
#ifndef LORA_RECURRENCE_LAYOUT_H
#define LORA_RECURRENCE_LAYOUT_H

#include <stdint.h>

#include "abi.h"

/* Of a KV head: columns of values, of those that go through the convolution, and of those that a
 * position keeps. */
static inline uint32_t recurrence_values(const struct lora_recurrence *c) {
    return (uint32_t)c->value_heads * c->value_columns;
}

static inline uint32_t recurrence_convolved(const struct lora_recurrence *c) {
    return 2u * c->key_heads * c->key_columns + recurrence_values(c);
}

/* Gates of a value head: a and b, or dt. */
static inline uint32_t recurrence_gates(const struct lora_recurrence *c) {
    if (c->form == LORA_RECURRENCE_SHORT_CONV) return 0;
    return c->form == LORA_RECURRENCE_GATED_DELTA ? 2 : 1;
}

static inline uint32_t recurrence_kept(const struct lora_recurrence *c) {
    return recurrence_convolved(c) + recurrence_gates(c) * c->value_heads;
}

/* Key heads in a row of x, of all local KV heads. */
static inline uint32_t recurrence_key_heads(const struct lora_list *list,
                                            const struct lora_recurrence *c) {
    if (c->sharing == 0) return (uint32_t)c->key_heads * list->kv_heads;
    return (c->sharing_first + list->kv_heads - 1u) / c->sharing + 1u;
}

/* Which of them is key head `key` of a local KV head. */
static inline uint32_t recurrence_key_head(const struct lora_recurrence *c, uint32_t head,
                                           uint32_t key) {
    return c->sharing == 0 ? head * c->key_heads + key : (c->sharing_first + head) / c->sharing;
}

/* Columns of x that go through the convolution, and all of x but the gate. */
static inline uint32_t recurrence_row_convolved(const struct lora_list *list,
                                                const struct lora_recurrence *c) {
    uint32_t keys = recurrence_key_heads(list, c) * c->key_columns;
    return 2u * keys + recurrence_values(c) * list->kv_heads;
}

static inline uint32_t recurrence_row(const struct lora_list *list,
                                      const struct lora_recurrence *c) {
    if (c->form == LORA_RECURRENCE_SHORT_CONV) return 2u * recurrence_values(c) * list->kv_heads;
    return recurrence_row_convolved(list, c) +
           recurrence_gates(c) * c->value_heads * list->kv_heads;
}

/* FP32 values of the state of a KV head. */
static inline uint32_t recurrence_state(const struct lora_recurrence *c) {
    return c->key_columns * recurrence_values(c);
}

/* Planes of positions, and these and those of the state. */
static inline uint32_t recurrence_position_planes(const struct lora_list *list,
                                                  const struct lora_recurrence *c) {
    uint32_t each = 2u * list->head_dim;
    return (recurrence_kept(c) + each - 1) / each;
}

static inline uint32_t recurrence_planes(const struct lora_list *list,
                                         const struct lora_recurrence *c) {
    uint32_t each = LORA_TILE_POSITIONS * (uint32_t)list->head_dim; /* FP32 values in a plane */
    return recurrence_position_planes(list, c) + (recurrence_state(c) + each - 1) / each;
}

struct recurrence_table { /* byte offsets in it */
    uint32_t row;         /* bytes of a row of the convolution's weights, or of its biases */
    uint32_t biases;      /* SELECTIVE_SCAN, as `skip` and `constants` */
    uint32_t decay, bias, gamma;
    uint32_t skip, constants;
    uint32_t bytes;
};

static inline uint32_t recurrence_lines(uint32_t bytes) {
    return (bytes + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES * LORA_LINE_BYTES;
}

static inline struct recurrence_table recurrence_table(const struct lora_list *list,
                                                       const struct lora_recurrence *c) {
    uint32_t heads = recurrence_lines((uint32_t)list->kv_heads * c->value_heads * 4);
    struct recurrence_table t = {.row = recurrence_lines(recurrence_row_convolved(list, c) * 2)};
    t.bytes = t.row * c->kernel;
    if (c->form == LORA_RECURRENCE_SHORT_CONV) return t;
    t.biases = t.bytes;
    t.decay = t.biases + (c->form == LORA_RECURRENCE_SELECTIVE_SCAN ? t.row : 0);
    t.bias = t.decay + heads;
    t.gamma = t.skip = t.bias + heads;
    t.constants = t.skip + heads;
    t.bytes = c->form == LORA_RECURRENCE_GATED_DELTA
                  ? t.gamma + recurrence_lines(c->value_columns * 2u)
                  : t.constants + recurrence_lines(sizeof(struct lora_scan_constants));
    return t;
}

#endif
