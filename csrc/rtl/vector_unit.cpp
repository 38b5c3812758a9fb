/* overlays/rtl/vfu/vector_unit.sv, simulated. */
#include "VVfu.h"
#include "VVfu___024root.h"
#include "disturbed_run.hpp"
#include "matmul_call.hpp"
#include "simulated_unit.hpp"
#include "simulation.hpp"
#include "vector_call.hpp"

namespace {

class VectorUnit : public SimulatedUnit {
  public:
    explicit VectorUnit(uint32_t seed) : unit_(seed) {}

    bool can(const lora_unit_call *call) const override { return vector_unit_can(call); }

    int run(lora_unit_call *call, MemoryTiming timing, uint64_t *cycles) override {
        give(call);
        return result(call,
                      unit_.run(call, timing, cycles, [=](VVfu &unit) { give_row(call, unit); }));
    }

    int disturb(lora_unit_call *call, Disturbance &how, lora_rtl_disturbed &counts,
                uint64_t *cycles) override {
        DisturbedUnit<VVfu> unit{unit_, [this](const lora_unit_call *one) { give(one); }, give_row,
                                 state};
        return result(call, run_disturbed(unit, other_, call, how, counts, cycles));
    }

  private:
    [[maybe_unused]] static constexpr uint32_t PROGRAMMED_STATES = 16;

    int result(lora_unit_call *call, int status) {
        take_counts(unit_, call);
        return status == LORA_OK && unit_->bad_index ? int{LORA_ERR_SIZE} : status;
    }

    /* Of the programmed unit, or behind those the pipes'. */
    static uint32_t state(const VVfu &one) {
#if LORA_RTL_PIPES
        uint32_t of_pipes = one.rootp->vector_unit__DOT__many__DOT__piped__DOT__state;
        if (of_pipes) return PROGRAMMED_STATES + of_pipes;
#endif
        return one.rootp->vector_unit__DOT__programmed__DOT__state;
    }

    /* The step's row that the unit asks for. */
    static void give_row(const lora_unit_call *call, VVfu &unit) {
        const lora_step_state *state = call->state;
        const lora_row &row = state->rows[step_row(call, unit.row & 63) % LORA_MAX_ROWS];
        uint32_t vectors = state->block_offset + 2 * vector_of(call)->first;
        unit.row_is_vector = (row.flags & LORA_ROW_VECTOR) != 0;
        unit.row_token = unit.row_is_vector ? vectors + row.token : row.token;
        unit.row_position = row.position;
    }

    void give(const lora_unit_call *call) {
        const lora_vector *c = vector_of(call);
        RowsAt x = x_of(call), y = y_of(call);
        unit_->op = c->op;
        unit_->has_a = c->a_bank != LORA_NO_BANK;
        unit_->has_b = c->b_bank != LORA_NO_BANK;
        unit_->one_plus = (c->flags & LORA_FLAG_ONE_PLUS) != 0;
        unit_->columns = c->columns;
        unit_->rows = static_cast<uint8_t>(rows_of(call));
        unit_->head_dim = head_columns(call);
        unit_->count = folded_count(call);
        unit_->first = c->first;
        unit_->record = first_record(call);
        unit_->x_bank = x.bank & 63;
        unit_->x_offset = x.offset;
        unit_->x_stride = x.stride;
        unit_->z_bank = LORA_BANK_ONCHIP;
        unit_->z_offset = c->z_offset;
        unit_->z_stride = c->z_stride;
        unit_->a_bank = c->a_bank & 63;
        unit_->a_line = c->a_line;
        unit_->b_bank = c->b_bank & 63;
        unit_->b_line = c->b_line;
        unit_->y_bank = y.bank & 63;
        unit_->y_offset = y.offset;
        unit_->y_stride = y.stride;
        unit_->scalar = c->scalar;
        unit_->extra = c->extra;
        unit_->vector_bank = static_cast<uint8_t>(call->list->control_bank & 63);
    }

    KeptCall other_;
    Simulation<VVfu> unit_;
};

} // namespace

std::unique_ptr<SimulatedUnit> make_vector_unit(uint32_t seed) {
    return std::make_unique<VectorUnit>(seed);
}
