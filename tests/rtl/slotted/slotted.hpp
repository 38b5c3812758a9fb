// A unit behind its slot and an arbiter: its step, which a test hands out row by row, and a memory
// that does what it is asked in any order, refuses what it has not, and may fail once.
// `Rows` gives the fields of the row that the model asked for in the cycle before.
#ifndef LORA_TEST_SLOTTED_HPP
#define LORA_TEST_SLOTTED_HPP

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <vector>

#include <verilated.h>

#include "lora/abi.h"
#include "random.hpp"

constexpr uint32_t BANK_BYTES = 1 << 17, LIMIT = 1 << 21;
using Banks = std::map<uint32_t, std::vector<uint8_t>>;

template <size_t COUNT> Banks read_banks(std::ifstream &file, const uint32_t (&numbers)[COUNT]) {
    Banks banks;
    for (uint32_t bank : numbers) {
        banks[bank].resize(BANK_BYTES);
        file.read(reinterpret_cast<char *>(banks[bank].data()), BANK_BYTES);
    }
    return banks;
}

// What memory failed at.
struct Failed {
    bool any = false, write = false;
    uint32_t tag = 0;
};

template <class Model, class Rows> class Slotted {
  public:
    explicit Slotted(uint32_t seed) : random_(seed) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed + 1));
        model_ = std::make_unique<Model>(&context_);
        model_->clk = 0;
        reset();
    }
    ~Slotted() { model_->final(); }

    Model &model() { return *model_; }
    Rows &rows() { return rows_; }

    void give(const lora_step_state &state, Banks &banks) {
        state_ = &state;
        banks_ = &banks;
    }

    // Unit, arbiter and memory.
    void reset() {
        Model &m = *model_;
        m.unit_announce = m.unit_start = m.unit_abort = m.result_ready = 0;
        m.line_valid = m.written = m.read_ready = m.write_ready = 0;
        m.line_refused = m.line_error = m.written_refused = m.written_error = 0;
        reads_.clear();
        writes_.clear();
        rows_.reset();
        m.rst = 1;
        m.eval();
        edge();
        m.rst = 0;
    }

    // Until nothing is left of what runs or was told.
    bool abort() {
        model_->unit_abort = 1;
        cycle();
        model_->unit_abort = 0;
        return settle();
    }
    bool settle() {
        for (uint32_t i = 0; !model_->unit_idle; i++) {
            if (i == LIMIT || model_->result_valid) return false;
            cycle();
        }
        return idle();
    }

    bool idle() const { return model_->unit_idle && !under_way(); }
    bool under_way() const { return !reads_.empty() || !writes_.empty(); }

    // Memory fails at the how-manieth thing that it does from now on; 0: not at all.
    void fail_at(uint32_t count) {
        fail_at_ = count;
        failed = {};
    }

    void cycle() {
        Model &m = *model_;
        rows_.answer(m, *state_);
        answer();
        m.eval();
        read_taken = m.read_valid && m.read_ready;
        if (read_taken) reads_.push_back({m.read_bank, m.read_line, m.read_tag, 0, {}});
        if (m.write_valid && m.write_ready) {
            writes_.push_back({m.write_bank, m.write_line, m.write_id, m.write_bytes, {}});
            std::memcpy(writes_.back().data, &m.write_data[0], LORA_LINE_BYTES);
        }
        rows_.note(m, *state_);
        edge();
    }

    Failed failed;
    bool read_taken = false; // in the cycle before

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

    bool fails(const Request &it, bool write) {
        if (fail_at_ == 0 || --fail_at_ != 0) return false;
        failed = {true, write, it.tag};
        return true;
    }

    // Requests are done in any order.
    void answer() {
        Model &m = *model_;
        m.read_ready = !random_.once_in(4);
        m.write_ready = !random_.once_in(4);
        m.line_valid = m.written = m.line_refused = m.written_refused = 0;
        m.line_error = m.written_error = 0;
        if (!reads_.empty() && random_.once_in(2)) {
            Request it = any(reads_);
            m.line_valid = 1;
            m.line_tag = it.tag;
            if (const uint8_t *from = place(it))
                std::memcpy(&m.line_data[0], from, LORA_LINE_BYTES);
            else m.line_refused = 1;
            m.line_error = fails(it, false);
        }
        if (!writes_.empty() && random_.once_in(3)) {
            Request it = any(writes_);
            uint8_t *to = place(it);
            m.written = 1;
            m.written_id = static_cast<uint8_t>(it.tag);
            m.written_refused = !to;
            m.written_error = fails(it, true);
            for (uint32_t i = 0; to && i < LORA_LINE_BYTES; i++)
                if (it.bytes >> i & 1) to[i] = it.data[i];
        }
    }

    Random random_;
    Rows rows_{};
    VerilatedContext context_{};
    std::unique_ptr<Model> model_;
    const lora_step_state *state_ = nullptr;
    Banks *banks_ = nullptr;
    std::vector<Request> reads_, writes_;
    uint32_t fail_at_ = 0;
};

#endif
