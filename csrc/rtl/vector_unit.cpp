/* overlays/rtl/vfu/vfu.sv, simulated. */
#include "VVfu.h"
#include "matmul_call.hpp"
#include "simulated_unit.hpp"
#include "simulation.hpp"

namespace {

enum Reads : uint32_t { X = 1, X_SINGLE = 2, Z = 4, A = 8, B = 16 };
enum Element : uint32_t { HALF = 0, SINGLE = 1, INT8 = 2 };

/* As vfu_operation.sv has them. */
struct Operation {
    uint32_t op;
    uint32_t reads;
    Element element;
};

const Operation OPERATIONS[] = {
    {LORA_VEC_EMBED, A | B, HALF},
    {LORA_VEC_EMBED_SCALED, A | B, HALF},
    {LORA_VEC_ADD_POSITION, X | B, HALF},
    {LORA_VEC_LN_APPLY, X | A | B, HALF},
    {LORA_VEC_RMS_APPLY, X | A, HALF},
    {LORA_VEC_RESIDUAL, X | Z, HALF},
    {LORA_VEC_RESIDUAL_SCALED, X | Z, HALF},
    {LORA_VEC_RELU, X, HALF},
    {LORA_VEC_GELU_TANH, X, HALF},
    {LORA_VEC_GELU_ERF, X, HALF},
    {LORA_VEC_SWIGLU, X | Z, HALF},
    {LORA_VEC_GEGLU, X | Z, HALF},
    {LORA_VEC_QUANTIZE, X, INT8},
    {LORA_VEC_SCALE, X | X_SINGLE, SINGLE},
    {LORA_VEC_SOFTCAP, X | X_SINGLE, SINGLE},
};

const lora_vector *vector_of(const lora_unit_call *call) {
    return reinterpret_cast<const lora_vector *>(call->command);
}

const Operation *operation_of(const lora_vector *c) {
    for (const Operation &operation : OPERATIONS)
        if (operation.op == c->op) return &operation;
    return nullptr;
}

bool embeds(const lora_vector *c) {
    return c->op == LORA_VEC_EMBED || c->op == LORA_VEC_EMBED_SCALED;
}

bool is_norm(const lora_vector *c) {
    return c->op == LORA_VEC_LN_APPLY || c->op == LORA_VEC_RMS_APPLY;
}

bool at_lines(uint32_t offset, uint32_t stride) {
    return offset % LORA_LINE_BYTES == 0 && stride % LORA_LINE_BYTES == 0;
}

/* Rows that overlap y otherwise than in place. */
bool tangled(uint32_t bank, uint32_t offset, uint32_t stride, uint64_t bytes, const lora_vector *c,
             uint64_t y_bytes, uint32_t rows) {
    if (bank != c->y_bank) return false;
    if (offset == c->y_offset && stride == c->y_stride && bytes == y_bytes) return false;
    uint64_t end = offset + uint64_t{stride} * (rows - 1) + bytes;
    uint64_t y_end = c->y_offset + uint64_t{c->y_stride} * (rows - 1) + y_bytes;
    return offset < y_end && c->y_offset < end;
}

bool names_vector(const lora_unit_call *call) {
    for (uint32_t i = 0; i < rows_of(call); i++)
        if (call->state->rows[step_row(call, i)].flags & LORA_ROW_VECTOR) return true;
    return false;
}

class VectorUnit : public SimulatedUnit {
  public:
    explicit VectorUnit(uint32_t seed) : unit_(seed) {}

    bool can(const lora_unit_call *call) const override {
        const lora_vector *c = vector_of(call);
        const Operation *operation = operation_of(c);
        uint32_t rows = rows_of(call);
        if (!operation || c->columns == 0 || rows == 0 || rows > LORA_MAX_ROWS) return false;
        if (embeds(c) && names_vector(call)) return false;
        uint64_t size = c->columns, half = 2 * size;
        uint64_t y_bytes = operation->element == SINGLE ? 4 * size
                           : operation->element == INT8 ? size
                                                        : half;
        bool x = operation->reads & X && !(operation->reads & X_SINGLE);
        bool z = operation->reads & Z, sums = is_norm(c);
        if (!at_lines(c->y_offset, c->y_stride)) return false;
        if (x && (!at_lines(c->x_offset, c->x_stride) ||
                  tangled(LORA_BANK_ONCHIP, c->x_offset, c->x_stride, half, c, y_bytes, rows)))
            return false;
        if ((z || sums) && !at_lines(c->z_offset, c->z_stride)) return false;
        return !(z || sums) || !tangled(LORA_BANK_ONCHIP, c->z_offset, c->z_stride,
                                        sums ? LORA_LINE_BYTES : half, c, y_bytes, rows);
    }

    int run(lora_unit_call *call, MemoryTiming timing, uint64_t *cycles) override {
        give(call);
        int status = unit_.run(call, timing, cycles, [call](VVfu &unit) {
            const lora_row &row = call->state->rows[step_row(call, unit.row & 63)];
            unit.row_token = row.token;
            unit.row_position = row.position;
        });
        take_counts(unit_, call);
        return status;
    }

  private:
    void give(const lora_unit_call *call) {
        const lora_vector *c = vector_of(call);
        const Operation &operation = *operation_of(c);
        bool single = operation.element == SINGLE;
        unit_->op = c->op;
        unit_->has_a = c->a_bank != LORA_NO_BANK;
        unit_->has_b = c->b_bank != LORA_NO_BANK;
        unit_->one_plus = (c->flags & LORA_FLAG_ONE_PLUS) != 0;
        unit_->columns = c->columns;
        unit_->rows = rows_of(call);
        unit_->x_bank = single ? c->y_bank : LORA_BANK_ONCHIP;
        unit_->x_line = (single ? c->y_offset : c->x_offset) / LORA_LINE_BYTES;
        unit_->x_stride = (single ? c->y_stride : c->x_stride) / LORA_LINE_BYTES;
        unit_->z_bank = LORA_BANK_ONCHIP;
        unit_->z_line = c->z_offset / LORA_LINE_BYTES;
        unit_->z_stride = c->z_stride / LORA_LINE_BYTES;
        unit_->a_bank = c->a_bank & 63;
        unit_->a_line = c->a_line;
        unit_->b_bank = c->b_bank & 63;
        unit_->b_line = c->b_line;
        unit_->y_bank = c->y_bank;
        unit_->y_line = c->y_offset / LORA_LINE_BYTES;
        unit_->y_stride = c->y_stride / LORA_LINE_BYTES;
        unit_->scalar = c->scalar;
        unit_->extra = c->extra;
    }

    Simulation<VVfu> unit_;
};

} // namespace

std::unique_ptr<SimulatedUnit> make_vector_unit(uint32_t seed) {
    return std::make_unique<VectorUnit>(seed);
}
