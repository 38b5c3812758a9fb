// Vector commands through slot, unit and arbiter, as tests/rtl/test_slotted_vector.py writes them:
// status, counts and all bytes are the native kernels'. Runs are ended at any cycle and begun
// again.
//   bench FILE SEED
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <verilated.h>

#include "VSlotted.h"
#include "lora/abi.h"
#include "lora/kernels.h"
#include "matmul_call.hpp"
#include "random.hpp"

namespace {

constexpr uint32_t BANK_BYTES = 1 << 17, LIMIT = 1 << 20;
constexpr uint32_t BANKS[] = {LORA_BANK_ONCHIP, 32, 33};
using Banks = std::map<uint32_t, std::vector<uint8_t>>;

struct Case {
    lora_command command;
    lora_list list;
    lora_step_state state;
    uint32_t status, nonfinite_count, nonfinite_row;
};

Banks read_banks(std::ifstream &file) {
    Banks banks;
    for (uint32_t bank : BANKS) {
        banks[bank].resize(BANK_BYTES);
        file.read(reinterpret_cast<char *>(banks[bank].data()), BANK_BYTES);
    }
    return banks;
}

class Board {
  public:
    explicit Board(uint32_t seed) : random_(seed) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed + 1));
        model_ = std::make_unique<VSlotted>(&context_);
        VSlotted &m = *model_;
        m.clk = m.unit_announce = m.unit_start = m.unit_abort = m.result_ready = 0;
        m.line_valid = m.written = m.read_ready = m.write_ready = 0;
        m.onchip_bytes = BANK_BYTES;
        m.rst = 1;
        m.eval();
        edge();
        m.rst = 0;
    }
    ~Board() { model_->final(); }

    // Whether its result came before `until` cycles were over.
    bool run(const Case &it, Banks &banks, uint32_t until) {
        VSlotted &m = *model_;
        lora_unit_call call{};
        call.command = &it.command;
        call.list = &it.list;
        call.state = &it.state;
        case_ = &it;
        banks_ = &banks;
        m.list_head_dim = it.list.head_dim;
        m.control_bank = it.list.control_bank;
        m.block_offset = it.state.block_offset;
        std::memcpy(&m.unit_line[0], &it.command, sizeof it.command);
        m.unit_rows = static_cast<uint8_t>(rows_of(&call));
        m.unit_announce = 1;
        cycle();
        m.unit_announce = 0;
        m.unit_start = 1;
        for (uint32_t i = 0; i < until; i++) {
            bool over = m.result_valid;
            m.result_ready = over;
            status = m.result_status;
            nonfinite_count = m.result_nonfinite_count;
            nonfinite_row = m.result_nonfinite_row;
            cycle();
            m.unit_start = m.result_ready = 0;
            if (over) return true;
        }
        return false;
    }

    // Until nothing is left of the command.
    bool end() {
        under_way += !reads_.empty() || !writes_.empty();
        model_->unit_abort = 1;
        cycle();
        model_->unit_abort = 0;
        for (uint32_t i = 0; !model_->unit_idle; i++) {
            if (i == LIMIT || model_->result_valid) return false;
            cycle();
        }
        return idle();
    }

    bool idle() const { return model_->unit_idle && reads_.empty() && writes_.empty(); }

    uint32_t status = 0, nonfinite_count = 0, nonfinite_row = 0;
    uint64_t under_way = 0;

  private:
    struct Request {
        uint32_t bank, line, tag;
        uint64_t bytes;
        uint8_t data[LORA_LINE_BYTES];
    };

    void edge() {
        model_->clk = 1;
        model_->eval();
        model_->clk = 0;
        model_->eval();
    }

    Request any(std::vector<Request> &from) {
        size_t at = random_.below(from.size());
        Request found = from[at];
        from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
        return found;
    }

    uint8_t *place(const Request &it) {
        auto bank = banks_->find(it.bank);
        bool there = bank != banks_->end() && it.line < BANK_BYTES / LORA_LINE_BYTES;
        return there ? &bank->second[it.line * LORA_LINE_BYTES] : nullptr;
    }

    // Memory: requests are done in any order.
    void answer() {
        VSlotted &m = *model_;
        m.read_ready = !random_.once_in(4);
        m.write_ready = !random_.once_in(4);
        m.line_valid = m.written = m.line_refused = m.written_refused = 0;
        if (!reads_.empty() && random_.once_in(2)) {
            Request it = any(reads_);
            m.line_valid = 1;
            m.line_tag = it.tag;
            if (const uint8_t *from = place(it))
                std::memcpy(&m.line_data[0], from, LORA_LINE_BYTES);
            else m.line_refused = 1;
        }
        if (!writes_.empty() && random_.once_in(3)) {
            Request it = any(writes_);
            uint8_t *to = place(it);
            m.written = 1;
            m.written_id = static_cast<uint8_t>(it.tag);
            m.written_refused = !to;
            for (uint32_t i = 0; to && i < LORA_LINE_BYTES; i++)
                if (it.bytes >> i & 1) to[i] = it.data[i];
        }
    }

    void cycle() {
        VSlotted &m = *model_;
        const lora_row &row = case_->state.rows[row_ % LORA_MAX_ROWS];
        m.row_number = static_cast<uint8_t>(row_);
        m.row_flags = row.flags;
        m.row_token = row.token;
        m.row_position = row.position;
        answer();
        m.eval();
        if (m.read_valid && m.read_ready)
            reads_.push_back({m.read_bank, m.read_line, m.read_tag, 0, {}});
        if (m.write_valid && m.write_ready) {
            writes_.push_back({m.write_bank, m.write_line, m.write_id, m.write_bytes, {}});
            std::memcpy(writes_.back().data, &m.write_data[0], LORA_LINE_BYTES);
        }
        row_ = m.row_selected ? case_->state.selected[m.row % LORA_MAX_ROWS] : m.row;
        edge();
    }

    Random random_;
    VerilatedContext context_{};
    std::unique_ptr<VSlotted> model_;
    const Case *case_ = nullptr;
    Banks *banks_ = nullptr;
    std::vector<Request> reads_, writes_;
    uint32_t row_ = 0;
};

} // namespace

int main(int count, char **arguments) {
    if (count != 3) return 2;
    std::ifstream file(arguments[1], std::ios::binary);
    uint32_t seed = static_cast<uint32_t>(std::stoul(arguments[2])), number = 0, ended = 0;
    Random random(seed);
    Board board(seed);
    for (Case it; file.read(reinterpret_cast<char *>(&it), sizeof it); number++) {
        const Banks before = read_banks(file), wanted = read_banks(file);
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
