/* overlays/rtl/attention/attention.sv, simulated. */
#include "VAttention.h"
#include "attention_call.hpp"
#include "disturbed_run.hpp"
#include "matmul_call.hpp"
#include "simulated_unit.hpp"
#include "simulation.hpp"

namespace {

class AttentionUnit : public SimulatedUnit {
  public:
    explicit AttentionUnit(uint32_t seed) : unit_(seed) {}

    bool can(const lora_unit_call *call) const override { return attention_unit_can(call); }

    int run(lora_unit_call *call, MemoryTiming timing, uint64_t *cycles) override {
        give(call);
        int status = unit_.run(call, timing, cycles,
                               [=](VAttention &unit) { give_row(call, unit); });
        take_counts(unit_, call);
        return status;
    }

    int disturb(lora_unit_call *call, Disturbance &how, lora_rtl_disturbed &counts,
                uint64_t *cycles) override {
        DisturbedUnit<VAttention> unit{
            unit_, [this](const lora_unit_call *one) { give(one); }, give_row,
            [](const VAttention &one) -> uint32_t { return one.state; }, LORA_RTL_ATTENTIONS - 1};
        int status = run_disturbed(unit, other_, call, how, counts, cycles);
        take_counts(unit_, call);
        return status;
    }

  private:
    /* The step's row and the slot that the unit asks for. */
    static void give_row(const lora_unit_call *call, VAttention &unit) {
        const lora_step_state *state = call->state;
        uint32_t asked = unit.row < rows_of(call) ? unit.row : 0;
        const lora_row &row = state->rows[step_row(call, asked)];
        int32_t parent = state->slots[unit.slot].parent;
        unit.row_sequence = static_cast<uint16_t>(row.sequence);
        unit.row_committed = state->lengths[row.sequence] & 0x3ffff;
        unit.row_slot = row.slot & 127;
        unit.slot_is_last = parent == -1;
        unit.slot_parent = parent & 127;
    }

    void give(const lora_unit_call *call) {
        give_list(call);
        const lora_attention *c = attention_of(call);
        unit_->head_dim = c->head_dim;
        unit_->rows = static_cast<uint8_t>(rows_of(call));
        unit_->q_heads = c->q_heads;
        unit_->q_first = c->q_first;
        unit_->kv_first = c->kv_first;
        unit_->group = c->group;
        unit_->onchip_bank = LORA_BANK_ONCHIP;
        unit_->q_offset = c->q_offset;
        unit_->q_stride = c->q_stride;
        unit_->y_offset = c->y_offset;
        unit_->y_stride = c->y_stride;
        unit_->scale = c->scale;
        unit_->v_scale = c->v_scale;
        unit_->cap = c->cap;
        unit_->window = c->window;
        unit_->slope_kind = c->slope_kind & 3;
        unit_->slope_bank = c->slope_bank & 63;
        unit_->slope_line = c->slope_line;
        unit_->kv_layer = c->kv_layer;
    }

    void give_list(const lora_unit_call *call) {
        const lora_list *list = call->list;
        unit_->kind = list->kv_type & 3;
        unit_->kv_layers = list->kv_layers;
        unit_->kv_heads = list->kv_heads;
        unit_->kv_bank_first = list->kv_bank_first & 63;
        unit_->kv_bank_count = list->kv_bank_count & 63;
        unit_->kv_line = list->kv_line;
        unit_->spill_page = list->kv_spill_page;
        unit_->spill_bank_first = list->kv_spill_bank_first & 63;
        unit_->spill_bank_count = list->kv_spill_bank_count & 63;
        unit_->spill_line = list->kv_spill_line;
        unit_->table_bank = list->table_bank & 63;
        unit_->table_line = list->table_line;
        unit_->max_tiles = list->max_tiles;
    }

    KeptCall other_;
    Simulation<VAttention> unit_;
};

} // namespace

std::unique_ptr<SimulatedUnit> make_attention_unit(uint32_t seed) {
    return std::make_unique<AttentionUnit>(seed);
}
