// Vector commands through slot, unit and arbiter, as tests/rtl/test_slotted_vector.py writes them:
// status, counts and all bytes are the native kernels'. Runs are ended at any cycle and begun
// again.
//   bench FILE SEED
#include <cstdio>
#include <fstream>
#include <string>

#include "VSlotted.h"
#include "lora/kernels.h"
#include "matmul_call.hpp"
#include "slotted.hpp"

namespace {

constexpr uint32_t BANKS[] = {LORA_BANK_ONCHIP, 32, 33};

struct Case {
    lora_command command;
    lora_list list;
    lora_step_state state;
    uint32_t status, nonfinite_count, nonfinite_row;
};

struct Rows {
    uint32_t row = 0;
    void reset() {}
    void answer(VSlotted &m, const lora_step_state &state) const {
        const lora_row &found = state.rows[row % LORA_MAX_ROWS];
        m.row_number = static_cast<uint8_t>(row);
        m.row_flags = found.flags;
        m.row_token = found.token;
        m.row_position = found.position;
    }
    void note(VSlotted &m, const lora_step_state &state) {
        row = m.row_selected ? state.selected[m.row % LORA_MAX_ROWS] : m.row;
    }
};

class Board {
  public:
    explicit Board(uint32_t seed) : unit_(seed) { unit_.model().onchip_bytes = BANK_BYTES; }

    // Whether its result came before `until` cycles were over.
    bool run(const Case &it, Banks &banks, uint32_t until) {
        VSlotted &m = unit_.model();
        lora_unit_call call{};
        call.command = &it.command;
        call.list = &it.list;
        call.state = &it.state;
        unit_.give(it.state, banks);
        m.list_head_dim = it.list.head_dim;
        m.control_bank = it.list.control_bank;
        m.block_offset = it.state.block_offset;
        std::memcpy(&m.unit_line[0], &it.command, sizeof it.command);
        m.unit_rows = static_cast<uint8_t>(rows_of(&call));
        m.unit_announce = 1;
        unit_.cycle();
        m.unit_announce = 0;
        m.unit_start = 1;
        for (uint32_t i = 0; i < until; i++) {
            bool over = m.result_valid;
            m.result_ready = over;
            status = m.result_status;
            nonfinite_count = m.result_nonfinite_count;
            nonfinite_row = m.result_nonfinite_row;
            unit_.cycle();
            m.unit_start = m.result_ready = 0;
            if (over) return true;
        }
        return false;
    }

    bool end() {
        under_way += unit_.under_way();
        return unit_.abort();
    }

    bool idle() const { return unit_.idle(); }

    uint32_t status = 0, nonfinite_count = 0, nonfinite_row = 0;
    uint64_t under_way = 0;

  private:
    Slotted<VSlotted, Rows> unit_;
};

} // namespace

int main(int count, char **arguments) {
    if (count != 3) return 2;
    std::ifstream file(arguments[1], std::ios::binary);
    uint32_t seed = static_cast<uint32_t>(std::stoul(arguments[2])), number = 0, ended = 0;
    Random random(seed);
    Board board(seed);
    for (Case it; file.read(reinterpret_cast<char *>(&it), sizeof it); number++) {
        const Banks before = read_banks(file, BANKS), wanted = read_banks(file, BANKS);
        Banks banks = before;
        while (random.once_in(3)) {
            if (board.run(it, banks, 1 + random.below(600))) break;
            ended++;
            if (!board.end()) return std::fprintf(stderr, "case %u: not idle\n", number), 1;
        }
        banks = before;
        if (!board.run(it, banks, LIMIT))
            return std::fprintf(stderr, "case %u: no end\n", number), 1;
        bool same = board.status == it.status && board.idle();
        if (it.status == LORA_OK)
            same = same && board.nonfinite_count == it.nonfinite_count &&
                   board.nonfinite_row == it.nonfinite_row && banks == wanted;
        if (same) continue;
        std::fprintf(stderr,
                     "case %u: status %u, expected %u; %u not finite, expected %u; bytes %s\n",
                     number, board.status, it.status, board.nonfinite_count, it.nonfinite_count,
                     banks == wanted ? "equal" : "differ");
        return 1;
    }
    std::printf("{\"cases\": %u, \"ended\": %u, \"ended_under_way\": %llu}\n", number, ended,
                (unsigned long long)board.under_way);
    return 0;
}
