/* Sizes of what a recurrence reads and keeps (abi.h, struct lora_recurrence). The command's heads
 * and columns must be within their limits. */
#ifndef LORA_RECURRENCE_LAYOUT_H
#define LORA_RECURRENCE_LAYOUT_H

#include <stdint.h>

#include "abi.h"

/* Of a KV head: columns of values, of those that go through the convolution, of those that a
 * position keeps, and of x, the gate left out. */
static inline uint32_t recurrence_values(const struct lora_recurrence *c) {
    return (uint32_t)c->value_heads * c->value_columns;
}

static inline uint32_t recurrence_convolved(const struct lora_recurrence *c) {
    return 2u * c->key_heads * c->key_columns + recurrence_values(c);
}

static inline uint32_t recurrence_kept(const struct lora_recurrence *c) {
    uint32_t gates = c->form == LORA_RECURRENCE_GATED_DELTA ? 2u * c->value_heads : 0;
    return recurrence_convolved(c) + gates;
}

static inline uint32_t recurrence_inputs(const struct lora_recurrence *c) {
    return c->form == LORA_RECURRENCE_GATED_DELTA ? recurrence_kept(c) : 2 * recurrence_values(c);
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
    uint32_t row;         /* bytes of a row of the convolution's weights */
    uint32_t decay, bias, gamma;
    uint32_t bytes;
};

static inline uint32_t recurrence_lines(uint32_t bytes) {
    return (bytes + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES * LORA_LINE_BYTES;
}

static inline struct recurrence_table recurrence_table(const struct lora_list *list,
                                                       const struct lora_recurrence *c) {
    uint32_t heads = (uint32_t)list->kv_heads * c->value_heads;
    struct recurrence_table t = {
        .row = recurrence_lines(recurrence_convolved(c) * list->kv_heads * 2)};
    t.decay = t.row * c->kernel;
    t.bias = t.gamma = t.bytes = t.decay;
    if (c->form != LORA_RECURRENCE_GATED_DELTA) return t;
    t.bias = t.decay + recurrence_lines(heads * 4);
    t.gamma = t.bias + recurrence_lines(heads * 4);
    t.bytes = t.gamma + recurrence_lines(c->value_columns * 2u);
    return t;
}

#endif
