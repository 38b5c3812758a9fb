#include "vector_call.hpp"

#include <cstddef>

#include "matmul_call.hpp"

namespace {

enum Operand : uint32_t { X = 1, Y = 2, Z = 4 };

/* What an operation touches besides tables, and the bytes of its elements. */
struct Operation {
    uint32_t op, operands, x_element, y_element;
    bool heads; /* `extra` columns each */
};

const Operation OPERATIONS[] = {
    {LORA_VEC_EMBED, Y, 0, 2, false},
    {LORA_VEC_EMBED_SCALED, Y, 0, 2, false},
    {LORA_VEC_ADD_POSITION, X | Y, 2, 2, false},
    {LORA_VEC_LN_SUMS, X | Z, 2, 0, false},
    {LORA_VEC_RMS_SUMS, X | Z, 2, 0, false},
    {LORA_VEC_LN_APPLY, X | Y | Z, 2, 2, false},
    {LORA_VEC_RMS_APPLY, X | Y | Z, 2, 2, false},
    {LORA_VEC_ROPE, X, 2, 2, true},
    {LORA_VEC_RESIDUAL, X | Y | Z, 2, 2, false},
    {LORA_VEC_RESIDUAL_SCALED, X | Y | Z, 2, 2, false},
    {LORA_VEC_RELU, X | Y, 2, 2, false},
    {LORA_VEC_GELU_TANH, X | Y, 2, 2, false},
    {LORA_VEC_GELU_ERF, X | Y, 2, 2, false},
    {LORA_VEC_SWIGLU, X | Y | Z, 2, 2, false},
    {LORA_VEC_GEGLU, X | Y | Z, 2, 2, false},
    {LORA_VEC_ARGMAX, X | Y, 4, 4, false},
    {LORA_VEC_QUANTIZE, X | Y, 2, 1, false},
    {LORA_VEC_QUANTIZE_HEADS, X | Y | Z, 2, 1, true},
    {LORA_VEC_PERMUTE, X | Y, 0, 0, false}, /* elements of `extra` bytes */
    {LORA_VEC_RMS_HEADS, X | Y, 2, 2, true},
    {LORA_VEC_HEAD_SUMS, X | Z, 2, 0, false},
    {LORA_VEC_RMS_ROW, X | Y | Z, 2, 2, false},
    {LORA_VEC_SCALE, Y, 4, 4, false},
    {LORA_VEC_SOFTCAP, Y, 4, 4, false},
    {LORA_VEC_ROW_MAX, X | Z, 2, 0, false},
    {LORA_VEC_QUANTIZE_ROW, X | Y | Z, 2, 1, false},
};

const Operation *operation_of(const lora_vector *c) {
    for (const Operation &operation : OPERATIONS)
        if (operation.op == c->op) return &operation;
    return nullptr;
}

bool in_place(const lora_vector *c) { return c->op == LORA_VEC_SCALE || c->op == LORA_VEC_SOFTCAP; }

bool writes_z(const lora_vector *c) {
    return c->op == LORA_VEC_LN_SUMS || c->op == LORA_VEC_RMS_SUMS || c->op == LORA_VEC_HEAD_SUMS ||
           c->op == LORA_VEC_QUANTIZE_HEADS || c->op == LORA_VEC_ROW_MAX ||
           c->op == LORA_VEC_QUANTIZE_ROW;
}

uint64_t z_bytes(const lora_unit_call *call) {
    const lora_vector *c = vector_of(call);
    switch (c->op) {
    case LORA_VEC_LN_SUMS:
    case LORA_VEC_LN_APPLY: return 8 * LORA_SEGMENTS;
    case LORA_VEC_RMS_SUMS:
    case LORA_VEC_RMS_APPLY: return 4 * LORA_SEGMENTS;
    case LORA_VEC_QUANTIZE_HEADS: return 2ull * (c->columns / c->extra);
    case LORA_VEC_HEAD_SUMS:
    case LORA_VEC_RMS_ROW: return 4ull * (c->extra / call->list->head_dim);
    case LORA_VEC_ROW_MAX:
    case LORA_VEC_QUANTIZE_ROW: return sizeof(lora_row_scale);
    default: return 2ull * c->columns;
    }
}

RowsAt z_of(const lora_unit_call *call) {
    const lora_vector *c = vector_of(call);
    bool halves = c->op == LORA_VEC_QUANTIZE_HEADS || c->op == LORA_VEC_RESIDUAL ||
                  c->op == LORA_VEC_RESIDUAL_SCALED || c->op == LORA_VEC_SWIGLU ||
                  c->op == LORA_VEC_GEGLU;
    return {LORA_BANK_ONCHIP, c->z_offset, c->z_stride, z_bytes(call), halves ? 2u : 4u};
}

bool is_there(const lora_unit_call *call, const RowsAt &at) {
    uint64_t end = at.offset + uint64_t{at.stride} * (rows_of(call) - 1) + at.bytes;
    return at.bank <= LORA_BANK_ONCHIP && call->banks[at.bank] &&
           end <= call->bank_bytes[at.bank] && at.offset % at.element == 0 &&
           at.stride % at.element == 0;
}

/* `written` overlaps `read` otherwise than element by element. */
bool tangled(const RowsAt &written, const RowsAt &read, uint32_t rows) {
    if (written.bank != read.bank || written.bytes == 0 || read.bytes == 0) return false;
    if (written.offset == read.offset && written.stride == read.stride &&
        written.bytes == read.bytes && written.stride >= written.bytes)
        return false;
    uint64_t end = written.offset + uint64_t{written.stride} * (rows - 1) + written.bytes;
    uint64_t read_end = read.offset + uint64_t{read.stride} * (rows - 1) + read.bytes;
    return written.offset < read_end && read.offset < end;
}

bool table_is_there(const lora_unit_call *call, uint32_t bank, uint64_t offset, uint64_t bytes) {
    return bank <= LORA_BANK_ONCHIP && call->banks[bank] &&
           offset + bytes <= call->bank_bytes[bank];
}

uint64_t padded(uint64_t bytes) {
    return (bytes + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES * LORA_LINE_BYTES;
}

/* What a row asks of the tables of tokens, positions and rotations. */
bool row_tables_are_there(const lora_unit_call *call, const lora_row &row) {
    const lora_vector *c = vector_of(call);
    uint64_t a = uint64_t{c->a_line} * LORA_LINE_BYTES, b = uint64_t{c->b_line} * LORA_LINE_BYTES;
    uint64_t bytes = 2ull * c->columns, position = uint64_t{row.position} + c->extra;
    if (c->op == LORA_VEC_ROPE)
        return table_is_there(call, c->a_bank, a + row.position * padded(4ull * c->extra),
                              4ull * c->extra);
    if (c->op != LORA_VEC_ADD_POSITION) {
        bool vector = row.flags & LORA_ROW_VECTOR;
        uint64_t at = uint64_t{call->state->block_offset} + row.token + 2ull * c->first;
        uint32_t bank = vector ? call->list->control_bank : c->a_bank;
        if (!table_is_there(call, bank, vector ? at : a + row.token * padded(bytes), bytes))
            return false;
        if (vector && at % 2) return false;
        if (c->b_bank == LORA_NO_BANK) return true;
    }
    return table_is_there(call, c->b_bank, b + position * padded(bytes), bytes);
}

bool tables_are_there(const lora_unit_call *call) {
    const lora_vector *c = vector_of(call);
    uint64_t a = uint64_t{c->a_line} * LORA_LINE_BYTES, b = uint64_t{c->b_line} * LORA_LINE_BYTES;
    uint64_t bytes = 2ull * c->columns;
    switch (c->op) {
    case LORA_VEC_RMS_HEADS: return table_is_there(call, c->a_bank, a, 2ull * c->extra);
    case LORA_VEC_RMS_ROW: return table_is_there(call, c->a_bank, a, bytes);
    case LORA_VEC_PERMUTE: return table_is_there(call, c->a_bank, a, 4ull * c->columns);
    case LORA_VEC_LN_APPLY:
    case LORA_VEC_RMS_APPLY:
        if (c->a_bank != LORA_NO_BANK && !table_is_there(call, c->a_bank, a, bytes)) return false;
        return c->op == LORA_VEC_RMS_APPLY || c->b_bank == LORA_NO_BANK ||
               table_is_there(call, c->b_bank, b, bytes);
    case LORA_VEC_EMBED:
    case LORA_VEC_EMBED_SCALED:
        if (c->flags & LORA_FLAG_TOKEN_BLOCKS) return false; /* not in the source */
        [[fallthrough]];
    case LORA_VEC_ADD_POSITION:
    case LORA_VEC_ROPE:
        for (uint32_t i = 0; i < rows_of(call); i++)
            if (!row_tables_are_there(call, call->state->rows[step_row(call, i)])) return false;
        return true;
    default: return true;
    }
}

bool sizes_fit(const lora_unit_call *call, const Operation &operation) {
    const lora_vector *c = vector_of(call);
    uint32_t head_dim = call->list->head_dim;
    bool pairs = c->op == LORA_VEC_ROPE;
    if (operation.heads)
        return c->extra != 0 && c->columns % c->extra == 0 && (!pairs || c->extra % 2 == 0);
    switch (c->op) {
    case LORA_VEC_LN_SUMS:
    case LORA_VEC_RMS_SUMS:
    case LORA_VEC_LN_APPLY:
    case LORA_VEC_RMS_APPLY: return c->extra != 0;
    case LORA_VEC_PERMUTE: return c->extra == 1 || c->extra == 2;
    case LORA_VEC_HEAD_SUMS:
    case LORA_VEC_RMS_ROW:
        return head_dim != 0 && c->extra != 0 && c->extra % head_dim == 0 &&
               c->columns % head_dim == 0 && c->first % head_dim == 0 &&
               uint64_t{c->first} + c->columns <= c->extra;
    case LORA_VEC_ROW_MAX:
    case LORA_VEC_QUANTIZE_ROW:
        return c->extra != 0 && c->extra <= LORA_ROW_MAXIMA &&
               (c->op == LORA_VEC_QUANTIZE_ROW || c->first < c->extra);
    default: return true;
    }
}

} // namespace

const lora_vector *vector_of(const lora_unit_call *call) {
    return reinterpret_cast<const lora_vector *>(call->command);
}

RowsAt x_of(const lora_unit_call *call) {
    const lora_vector *c = vector_of(call);
    if (in_place(c)) return y_of(call);
    uint32_t element = c->op == LORA_VEC_PERMUTE ? c->extra : operation_of(c)->x_element;
    uint32_t bank = c->op == LORA_VEC_ARGMAX ? c->y_bank : uint32_t{LORA_BANK_ONCHIP};
    return {bank, c->x_offset, c->x_stride, uint64_t{c->columns} * element, element};
}

RowsAt y_of(const lora_unit_call *call) {
    const lora_vector *c = vector_of(call);
    if (c->op == LORA_VEC_ROPE) return x_of(call);
    uint32_t element = c->op == LORA_VEC_PERMUTE ? c->extra : operation_of(c)->y_element;
    uint64_t bytes = c->op == LORA_VEC_ARGMAX ? 8 : uint64_t{c->columns} * element;
    return {c->y_bank, c->y_offset, c->y_stride, bytes, element};
}

uint32_t head_columns(const lora_unit_call *call) {
    const lora_vector *c = vector_of(call);
    if (c->op == LORA_VEC_HEAD_SUMS) return call->list->head_dim;
    return operation_of(c)->heads ? c->extra : c->columns;
}

uint32_t folded_count(const lora_unit_call *call) {
    const lora_vector *c = vector_of(call);
    return c->op == LORA_VEC_RMS_ROW ? c->extra / call->list->head_dim : c->extra;
}

uint32_t first_record(const lora_unit_call *call) {
    const lora_vector *c = vector_of(call);
    if (c->op == LORA_VEC_HEAD_SUMS) return c->first / call->list->head_dim;
    if (c->op == LORA_VEC_ROW_MAX) return c->first;
    return c->op == LORA_VEC_QUANTIZE_ROW ? offsetof(lora_row_scale, scale) / 4 : 0;
}

bool vector_unit_can(const lora_unit_call *call) {
    const lora_vector *c = vector_of(call);
    const Operation *operation = operation_of(c);
    uint32_t rows = rows_of(call);
    if (!operation || rows == 0 || rows > LORA_MAX_ROWS || !sizes_fit(call, *operation))
        return false;
    bool empty = c->op == LORA_VEC_ARGMAX || c->op == LORA_VEC_ROW_MAX;
    if ((c->columns == 0 && !empty) || !tables_are_there(call)) return false;
    RowsAt x = x_of(call), y = y_of(call), z = z_of(call);
    bool reads_x = operation->operands & X, reads_z = operation->operands & Z;
    if (reads_x && x.bytes && !is_there(call, x)) return false;
    if (operation->operands & Y && !is_there(call, y)) return false;
    if (reads_z && !is_there(call, z)) return false;
    bool gathers = c->op == LORA_VEC_PERMUTE;
    if (operation->operands & Y) {
        bool over_x = gathers && x.bank == y.bank && x.offset == y.offset;
        if (reads_x && (tangled(y, x, rows) || over_x)) return false;
        if (reads_z && tangled(y, z, rows)) return false;
    }
    return !writes_z(c) || !tangled(z, x, rows);
}
