#include "adapter_call.hpp"

namespace {

constexpr uint32_t MAX_K = 32767; /* adapter.sv */
constexpr uint32_t MAX_CHUNKS = 1u << 20, MAX_H_COLUMNS = 1u << 24;

struct RowBytes {
    uint64_t begin, end;
};

RowBytes rows_at(uint32_t offset, uint32_t stride, uint32_t rows, uint64_t bytes) {
    return {offset, offset + uint64_t{stride} * (rows - 1) + bytes};
}

bool apart(const RowBytes &a, const RowBytes &b) { return a.end <= b.begin || b.end <= a.begin; }

bool slots_fit(const lora_list *list) {
    return list->adapter_slots <= LORA_MAX_ADAPTER_SLOTS && list->adapter_chunks <= MAX_CHUNKS &&
           list->adapter_matrices <= 0xffff && list->adapter_columns <= MAX_H_COLUMNS &&
           list->adapter_bank_count >= 1 && list->adapter_bank_count < LORA_BANK_ONCHIP &&
           list->adapter_bank_first + list->adapter_bank_count <= LORA_BANK_ONCHIP;
}

RowBytes h_rows(const lora_unit_call *call, uint32_t offset, uint32_t stride) {
    return rows_at(offset, stride, rows_of(call), 2ull * call->list->adapter_columns);
}

bool is_onchip(const lora_unit_call *call, const RowBytes &rows) {
    return call->banks[LORA_BANK_ONCHIP] && rows.end <= call->bank_bytes[LORA_BANK_ONCHIP];
}

bool h_fits(const lora_unit_call *call, uint32_t offset, uint32_t stride) {
    return offset % 2 == 0 && stride % 2 == 0 && is_onchip(call, h_rows(call, offset, stride));
}

} // namespace

const lora_adapter *adapter_of(const lora_unit_call *call) {
    return reinterpret_cast<const lora_adapter *>(call->command);
}

bool names_adapter(const lora_unit_call *call) {
    if (matrix_of(call)->adapter == 0) return false;
    for (uint32_t i = 0; i < rows_of(call); i++)
        if (call->state->rows[step_row(call, i)].adapter >= 0) return true;
    return false;
}

bool adapter_unit_can(const lora_unit_call *call) {
    const lora_adapter *c = adapter_of(call);
    uint32_t rows = rows_of(call);
    if (rows == 0 || rows > LORA_MAX_ROWS || c->k == 0 || c->k > MAX_K || !slots_fit(call->list) ||
        !h_fits(call, c->h_offset, c->h_stride))
        return false;
    RowBytes x = rows_at(c->x_offset, c->x_stride, rows, 2ull * c->k);
    return c->x_offset % LORA_LINE_BYTES == 0 && c->x_stride % LORA_LINE_BYTES == 0 &&
           is_onchip(call, x) && apart(x, h_rows(call, c->h_offset, c->h_stride));
}

bool adapter_unit_can_add(const lora_unit_call *call) {
#ifdef LORA_RTL_ADAPTER
    const lora_matrix *c = matrix_of(call);
    if (!slots_fit(call->list) || !h_fits(call, c->h_offset, c->h_stride)) return false;
    uint64_t y_bytes = (c->y_type == LORA_FP32 ? 4ull : 2ull) * c->n;
    RowBytes y = rows_at(c->y_offset, c->y_stride, rows_of(call), y_bytes);
    return c->y_bank != LORA_BANK_ONCHIP || apart(y, h_rows(call, c->h_offset, c->h_stride));
#else
    (void)call;
    return false;
#endif
}

int adapter_status(uint32_t verdict) {
    static const int statuses[] = {LORA_OK, LORA_ERR_SIZE, LORA_ERR_ADDRESS, LORA_ERR_UNIT};
    return statuses[verdict & 3];
}
