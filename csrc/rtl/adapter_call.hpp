/* What the adapter unit asks of a LORA_CMD_ADAPTER, and of a LORA_CMD_MATRIX whose rows name
 * adapters. */
#ifndef LORA_RTL_ADAPTER_CALL_HPP
#define LORA_RTL_ADAPTER_CALL_HPP

#include "matmul_call.hpp"

const lora_adapter *adapter_of(const lora_unit_call *call);
/* A matmul some of whose rows name one. */
bool names_adapter(const lora_unit_call *call);
/* Sizes that the unit has, rows of x and y apart from those of h. Tables it checks itself. */
bool adapter_unit_can(const lora_unit_call *call);
bool adapter_unit_can_add(const lora_unit_call *call);
/* lora_status of the unit's verdict (adapter_types.sv). */
int adapter_status(uint32_t verdict);

template <class Unit> void give_slots(Unit &unit, const lora_list *list) {
    unit.slots = static_cast<uint16_t>(list->adapter_slots);
    unit.slot_chunks = list->adapter_chunks;
    unit.slot_matrices = static_cast<uint16_t>(list->adapter_matrices);
    unit.h_columns = list->adapter_columns;
    unit.slot_line = list->adapter_line;
    unit.slot_bank_first = list->adapter_bank_first & 63;
    unit.slot_bank_count = list->adapter_bank_count & 63;
}

/* A*x */
template <class Unit> void give_down(Unit &unit, const lora_unit_call *call) {
    const lora_adapter *c = adapter_of(call);
    unit.down = 1;
    unit.matrix = c->adapter;
    unit.k = static_cast<uint16_t>(c->k);
    unit.n = 0;
    unit.rows = static_cast<uint8_t>(rows_of(call));
    unit.x_line = c->x_offset / LORA_LINE_BYTES;
    unit.x_stride = c->x_stride / LORA_LINE_BYTES;
    unit.h_offset = c->h_offset;
    unit.h_stride = c->h_stride;
    give_slots(unit, call->list);
}

/* What a matmul's rows add: scale*(B*h). */
template <class Unit> void give_up(Unit &unit, const lora_unit_call *call) {
    const lora_matrix *c = matrix_of(call);
    unit.down = 0;
    unit.matrix = static_cast<uint16_t>(c->adapter - 1);
    unit.k = 0;
    unit.n = c->n;
    unit.rows = static_cast<uint8_t>(rows_of(call));
    unit.x_line = unit.x_stride = 0;
    unit.h_offset = c->h_offset;
    unit.h_stride = c->h_stride;
    give_slots(unit, call->list);
}

/* The step's row that the unit asks for. */
template <class Unit> void give_row_adapter(const lora_unit_call *call, Unit &unit) {
    const lora_row &row = call->state->rows[step_row(call, unit.row & 63) % LORA_MAX_ROWS];
    unit.row_adapter = static_cast<uint32_t>(row.adapter);
}

#endif
