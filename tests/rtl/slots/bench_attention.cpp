// Attention's slot: bench_attention FILE SEED, FILE as tests/rtl/slots_rig.py writes it.
#include "VAttentionSlot.h"
#include "attention_call.hpp"
#include "slot_bench.hpp"

namespace {

struct Plays {
    struct Asked {
        uint32_t row = 0, slot = 0;
    };

    static bool may_refuse(const lora_unit_call &) { return false; }
    static void refuse(VAttentionSlot &, bool) {}
    static bool nothing(const lora_unit_call &call) { return attention_of(&call)->q_heads == 0; }
    static std::string kind(const lora_command &) { return "commands"; }

    static void hold(VAttentionSlot &s, const lora_unit_call &call) {
        std::memcpy(selected_, call.state->selected, sizeof selected_);
        s.kv_type = call.list->kv_type;
        s.list_head_dim = call.list->head_dim;
        s.list_kv_bank_count = call.list->kv_bank_count;
        s.list_max_tiles = call.list->max_tiles;
    }

    static void ask(VAttentionSlot &s, const lora_unit_call &call, Random &random) {
        s.unit_row = static_cast<uint8_t>(random.below(rows_of(&call)));
        s.unit_slot = static_cast<uint8_t>(random.below(LORA_MAX_SCRATCH));
    }
    // The row and slot that were asked for in the cycle before.
    static void answer(VAttentionSlot &s, const lora_unit_call &call, const Asked &asked) {
        uint32_t row = asked.row % LORA_MAX_ROWS;
        const lora_row &found = call.state->rows[row];
        s.row_number = static_cast<uint8_t>(row);
        s.row_sequence = found.sequence;
        s.row_slot = static_cast<uint32_t>(found.slot);
        s.row_committed = call.state->lengths[found.sequence % LORA_MAX_SEQUENCES];
        s.slot_parent = static_cast<uint16_t>(call.state->slots[asked.slot].parent);
    }
    static void note(VAttentionSlot &s, Asked &asked) {
        asked.row = s.row;
        if (s.row_selected) asked.row = selected_[s.row % LORA_MAX_ROWS];
        asked.slot = s.slot % LORA_MAX_SCRATCH;
    }
    static std::string wrong_row(VAttentionSlot &s, const lora_unit_call &call,
                                 const Asked &asked) {
        const lora_row &row = call.state->rows[asked.row % LORA_MAX_ROWS];
        int32_t parent = call.state->slots[asked.slot].parent;
        if (s.unit_row_sequence != (row.sequence & 0xffff)) return "sequence";
        if (s.unit_row_slot != (row.slot & 127)) return "slot";
        if (s.unit_row_committed !=
            (call.state->lengths[row.sequence % LORA_MAX_SEQUENCES] & 0x3ffff))
            return "committed";
        if (bool(s.unit_slot_is_last) != (parent == -1)) return "last of a path";
        return s.unit_slot_parent == (parent & 127) ? "" : "parent";
    }

    static std::string wrong_field(VAttentionSlot &s, const lora_unit_call &call) {
        const lora_attention *c = attention_of(&call);
        if (s.kind != call.list->kv_type || s.head_dim != c->head_dim) return "kind or head_dim";
        if (s.rows != rows_of(&call) || s.q_heads != c->q_heads || s.q_first != c->q_first)
            return "rows or q heads";
        if (s.kv_first != c->kv_first || s.group != c->group || s.kv_layer != c->kv_layer)
            return "kv";
        if (s.onchip_bank != LORA_BANK_ONCHIP || s.q_offset != c->q_offset ||
            s.q_stride != c->q_stride)
            return "q";
        if (s.y_offset != c->y_offset || s.y_stride != c->y_stride) return "y";
        if (s.scale != c->scale || s.v_scale != c->v_scale || s.cap != c->cap)
            return "scale, v_scale or cap";
        if (s.window != c->window || s.max_tiles != call.list->max_tiles)
            return "window or max_tiles";
        if (s.slope_kind != c->slope_kind) return "slope_kind";
        return s.slope_bank == (c->slope_bank & 63) && s.slope_line == c->slope_line ? ""
                                                                                     : "slopes";
    }

  private:
    static inline uint16_t selected_[LORA_MAX_ROWS] = {};
};

} // namespace

int main(int count, char **arguments) {
    if (count != 3) fail("bench_attention FILE SEED");
    uint32_t onchip_bytes;
    std::vector<Case> cases = read_cases(arguments[1], onchip_bytes);
    SlotBench<VAttentionSlot, Plays> bench(std::move(cases), onchip_bytes,
                                           static_cast<uint32_t>(std::stoul(arguments[2])));
    bench.run();
    return 0;
}
