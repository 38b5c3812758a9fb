// The vector unit's slot: bench_vector FILE SEED, FILE as tests/rtl/slots_rig.py writes it.
#include "VVectorSlot.h"
#include "slot_bench.hpp"
#include "vector_call.hpp"

namespace {

struct Plays {
    struct Asked {
        uint32_t row = 0;
    };

    static bool may_refuse(const lora_unit_call &call) {
        return vector_of(&call)->op == LORA_VEC_PERMUTE;
    }
    static void refuse(VVectorSlot &s, bool bad) { s.bad_index = bad; }
    static bool nothing(const lora_unit_call &call) {
        const lora_vector *c = vector_of(&call);
        return c->columns == 0 && c->op != LORA_VEC_ARGMAX && c->op != LORA_VEC_ROW_MAX &&
               c->op != LORA_VEC_QUANTIZE_ROW;
    }
    static std::string kind(const lora_command &command) {
        return "op_" + std::to_string(reinterpret_cast<const lora_vector &>(command).op);
    }

    static void hold(VVectorSlot &s, const lora_unit_call &call) {
        std::memcpy(selected_, call.state->selected, sizeof selected_);
        s.list_head_dim = call.list->head_dim;
        s.control_bank = call.list->control_bank;
        s.block_offset = call.state->block_offset;
    }

    static void ask(VVectorSlot &s, const lora_unit_call &call, Random &random) {
        s.unit_row = static_cast<uint8_t>(random.below(rows_of(&call)));
    }
    // The row that was asked for in the cycle before.
    static void answer(VVectorSlot &s, const lora_unit_call &call, const Asked &asked) {
        uint32_t row = asked.row % LORA_MAX_ROWS;
        const lora_row &found = call.state->rows[row];
        s.row_number = static_cast<uint8_t>(row);
        s.row_flags = found.flags;
        s.row_token = found.token;
        s.row_position = found.position;
    }
    static void note(VVectorSlot &s, Asked &asked) {
        asked.row = s.row;
        if (s.row_selected) asked.row = selected_[s.row % LORA_MAX_ROWS];
    }
    static std::string wrong_row(VVectorSlot &s, const lora_unit_call &call, const Asked &asked) {
        const lora_row &row = call.state->rows[asked.row % LORA_MAX_ROWS];
        bool vector = row.flags & LORA_ROW_VECTOR;
        uint32_t vectors = call.state->block_offset + 2 * vector_of(&call)->first;
        if (bool(s.vector_row) != vector) return "vector or token";
        if (s.vector_token != (vector ? vectors + row.token : row.token)) return "token";
        return s.vector_position == row.position ? "" : "position";
    }

    static std::string wrong_field(VVectorSlot &s, const lora_unit_call &call) {
        const lora_vector *c = vector_of(&call);
        RowsAt x = x_of(&call), y = y_of(&call);
        if (s.op != c->op) return "another operation";
        if (s.has_a != (c->a_bank != LORA_NO_BANK) || s.has_b != (c->b_bank != LORA_NO_BANK))
            return "tables";
        if (s.one_plus != ((c->flags & LORA_FLAG_ONE_PLUS) != 0)) return "one_plus";
        if (s.columns != c->columns || s.rows != rows_of(&call)) return "columns or rows";
        if (s.head_dim != head_columns(&call)) return "head_dim";
        bool counts = c->op == LORA_VEC_RMS_ROW || c->op == LORA_VEC_QUANTIZE_ROW;
        if (counts && s.count != folded_count(&call)) return "count";
        if (s.first != c->first || s.record != first_record(&call)) return "first or record";
        bool reads_x = c->op != LORA_VEC_EMBED && c->op != LORA_VEC_EMBED_SCALED;
        if (reads_x &&
            (s.x_bank != (x.bank & 63) || s.x_offset != x.offset || s.x_stride != x.stride))
            return "x";
        if (s.z_bank != LORA_BANK_ONCHIP || s.z_offset != c->z_offset || s.z_stride != c->z_stride)
            return "z";
        if (s.a_bank != (c->a_bank & 63) || s.a_line != c->a_line) return "a";
        if (s.b_bank != (c->b_bank & 63) || s.b_line != c->b_line) return "b";
        if (s.y_bank != (y.bank & 63) || s.y_offset != y.offset || s.y_stride != y.stride)
            return "y";
        if (s.scalar != c->scalar || s.extra != c->extra) return "scalar or extra";
        return s.vector_bank == (call.list->control_bank & 63) ? "" : "vector_bank";
    }

  private:
    static inline uint16_t selected_[LORA_MAX_ROWS] = {};
};

} // namespace

int main(int count, char **arguments) {
    if (count != 3) fail("bench_vector FILE SEED");
    uint32_t onchip_bytes;
    std::vector<Case> cases = read_cases(arguments[1], onchip_bytes);
    SlotBench<VVectorSlot, Plays> bench(std::move(cases), onchip_bytes,
                                        static_cast<uint32_t>(std::stoul(arguments[2])));
    bench.run();
    return 0;
}
