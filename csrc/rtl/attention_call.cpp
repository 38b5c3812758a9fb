#include "attention_call.hpp"

#include "lora/kv_layout.h"
#include "matmul_call.hpp"

namespace {

constexpr uint32_t MAX_HEAD_DIM = 256, MAX_POSITIONS = 131072; /* attention.sv */

uint64_t lines_of(uint64_t bytes) { return (bytes + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES; }

bool is_there(const lora_unit_call *call, uint32_t bank, uint64_t offset, uint64_t bytes) {
    return bank <= LORA_BANK_ONCHIP && call->banks[bank] &&
           offset + bytes <= call->bank_bytes[bank];
}

bool pool_fits(uint32_t first, uint32_t count) { return first + count <= LORA_BANK_ONCHIP + 1; }

bool layout_fits(const lora_unit_call *call) {
    const lora_attention *c = attention_of(call);
    const lora_list *list = call->list;
    uint64_t stride = (uint64_t{list->kv_layers} * list->kv_heads * 2) | 1;
    uint64_t layer = uint64_t{c->kv_layer} * list->kv_heads + list->kv_heads;
    return c->head_dim >= 1 && c->head_dim <= MAX_HEAD_DIM && c->head_dim == list->head_dim &&
           kv_type_right(list) && list->kv_bank_count >= 1 && list->max_tiles <= 0x10000 &&
           pool_fits(list->kv_bank_first, list->kv_bank_count) &&
           pool_fits(list->kv_spill_bank_first, list->kv_spill_bank_count) &&
           list->kv_spill_page <= 0x10000 && 0x10000 * stride + 2 * layer <= UINT32_MAX;
}

bool heads_fit(const lora_attention *c) {
    if (c->q_heads == 0 || c->group == 0 || c->q_first / c->group < c->kv_first) return false;
    uint32_t last = (uint32_t{c->q_first} + c->q_heads - 1) / c->group;
    return last - c->kv_first < c->kv_heads && last <= 0xffff;
}

bool rows_fit(const lora_unit_call *call) {
    const lora_attention *c = attention_of(call);
    uint64_t more = rows_of(call) - 1;
    uint32_t element = kv_element_bytes(call->list);
    uint64_t q_end = c->q_offset + c->q_stride * more +
                     uint64_t{element} * c->q_heads * c->head_dim;
    uint64_t y_end = c->y_offset + c->y_stride * more + 2ull * c->q_heads * c->head_dim;
    uint64_t size = call->bank_bytes[LORA_BANK_ONCHIP];
    return q_end <= size && y_end <= size && call->banks[LORA_BANK_ONCHIP] &&
           c->q_offset % element == 0 && c->q_stride % element == 0 && c->y_offset % 2 == 0 &&
           c->y_stride % 2 == 0 && (q_end <= c->y_offset || y_end <= c->q_offset);
}

/* Slots from this one to the oldest; 0: they never end, or leave the scratch pages. */
uint32_t depth_of(const lora_step_state *state, int32_t slot) {
    uint32_t depth = 0;
    for (; slot != -1; slot = state->slots[slot].parent, depth++)
        if (slot < 0 || slot >= LORA_MAX_SCRATCH || depth == LORA_MAX_SCRATCH) return 0;
    return depth;
}

bool row_fits(const lora_unit_call *call, const lora_row &row) {
    const lora_list *list = call->list;
    if (row.sequence >= LORA_MAX_SEQUENCES) return false;
    uint64_t committed = call->state->lengths[row.sequence];
    uint32_t depth = depth_of(call->state, row.slot);
    uint64_t line = list->table_line + row.sequence * lines_of(2ull * list->max_tiles);
    return depth != 0 && committed + depth <= MAX_POSITIONS &&
           committed <= uint64_t{list->max_tiles} * LORA_TILE_POSITIONS &&
           is_there(call, list->table_bank, line * LORA_LINE_BYTES, 2ull * list->max_tiles);
}

} // namespace

const lora_attention *attention_of(const lora_unit_call *call) {
    return reinterpret_cast<const lora_attention *>(call->command);
}

bool attention_unit_can(const lora_unit_call *call) {
    const lora_attention *c = attention_of(call);
    uint32_t rows = rows_of(call);
    if (rows == 0 || rows > LORA_MAX_ROWS || !layout_fits(call) || !heads_fit(c) || !rows_fit(call))
        return false;
    if (c->slope_kind > LORA_SLOPE_BF16_POSITION) return false;
    if (c->slope_kind != LORA_SLOPE_NONE &&
        !is_there(call, c->slope_bank, uint64_t{c->slope_line} * LORA_LINE_BYTES,
                  sizeof(lora_head_slope) * c->q_heads))
        return false;
    for (uint32_t i = 0; i < rows; i++)
        if (!row_fits(call, call->state->rows[step_row(call, i)])) return false;
    return true;
}
