// A step's fields and rows out of local memory, beside the same memory: every field, row, selected
// row and parent, also where it is read again, begun anew or reset.
//   bench STEPS SEED
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <verilated.h>

#include "VFeed.h"
#include "lora/abi.h"
#include "random.hpp"

namespace {

constexpr uint32_t LOCAL_BYTES = 1 << 17, READERS = 3, LIMIT = 20'000;
constexpr uint32_t LIST_FIRST = 24, LIST_END = 132; // bytes that are read: rank to stage_boards
constexpr uint32_t NUMBER_AT = 7 * 32 + 16, FOUND_BITS = NUMBER_AT + 6;

[[noreturn]] void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
    std::exit(1);
}

class Bench {
  public:
    explicit Bench(uint32_t seed) : random_(seed), memory_(LOCAL_BYTES) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed + 1));
        model_ = std::make_unique<VFeed>(&context_);
        model_->clk = model_->start = 0;
        model_->row_selected = 0;
        reset();
    }
    ~Bench() { model_->final(); }

    void run(uint32_t steps) {
        for (uint32_t i = 0; i < steps; i++) {
            make();
            busy_ = random_.once_in(3) ? 0 : random_.below(200);
            start();
            while (random_.once_in(3)) { // begun anew
                for (uint32_t n = random_.below(200); n--;) cycle();
                if (random_.once_in(4)) reset();
                start();
                counts_["again"]++;
            }
            uint64_t cycles = 0;
            for (; model_->busy; cycles++) {
                if (cycles > LIMIT) fail("step %u: no end", i);
                cycle();
            }
            if (!busy_) measure(cycles);
            look();
            if (random_.once_in(2)) read_again();
        }
        std::string text = "{";
        for (const auto &[name, count] : counts_)
            text += (text.size() > 1 ? ", \"" : "\"") + name + "\": " + std::to_string(count);
        std::printf("%s}\n", text.c_str());
    }

  private:
    // A step that the firmware could have accepted; what it does not read has any bits.
    void make() {
        for (auto &byte : memory_) byte = static_cast<uint8_t>(random_.next());
        list_at_ = 4 * random_.below(1000);
        state_at_ = 8192 + 4 * random_.below((LOCAL_BYTES - 16384) / 4);
        std::memcpy(&state_, &memory_[state_at_], sizeof state_);
        state_.row_count = random_.once_in(3) ? random_.below(3) : random_.below(LORA_MAX_ROWS + 1);
        state_.selected_count = random_.below(state_.row_count + 1);
        for (uint32_t i = 0; i < LORA_MAX_ROWS; i++)
            if (i < state_.selected_count || random_.once_in(2))
                state_.selected[i] = static_cast<uint16_t>(random_.below(LORA_MAX_ROWS));
        for (auto &slot : state_.slots)
            slot.parent = static_cast<int16_t>(random_.below(LORA_MAX_SCRATCH + 20)) -
                          (random_.once_in(2) ? 200 : 20);
        for (auto &row : state_.rows) {
            if (!random_.once_in(9)) row.sequence = random_.below(LORA_MAX_SEQUENCES);
            if (!random_.once_in(9))
                row.slot = static_cast<int32_t>(random_.below(LORA_MAX_SCRATCH + 2)) - 1;
        }
        std::memcpy(&memory_[state_at_], &state_, sizeof state_);
    }

    uint32_t word(uint32_t at) const {
        uint32_t value;
        std::memcpy(&value, &memory_[4 * at], 4);
        return value;
    }

    void start() {
        model_->list_place = list_at_;
        model_->state_place = state_at_;
        model_->start = 1;
        cycle();
        model_->start = 0;
        model_->list_place = random_.below(LOCAL_BYTES);
        model_->state_place = random_.below(LOCAL_BYTES);
        model_->eval();
        if (!model_->busy) fail("not busy behind its start");
    }

    void reset() {
        model_->rst = 1;
        cycle();
        model_->rst = 0;
        model_->eval();
        if (model_->busy) fail("busy behind a reset");
    }

    void cycle() {
        VFeed &m = *model_;
        m.load_ready = random_.below(256) >= busy_;
        m.load_data = static_cast<uint32_t>(taken_ ? word(place_) : random_.next());
        m.eval();
        taken_ = m.load_valid && m.load_ready;
        place_ = m.load_word;
        m.clk = 1;
        m.eval();
        m.clk = 0;
        m.eval();
    }

    // One row's, and what each further row and slot of a path adds.
    void measure(uint64_t cycles) {
        uint32_t rows = state_.row_count, slots = 0;
        std::vector<bool> known(LORA_MAX_SCRATCH);
        for (uint32_t i = 0; i < rows; i++)
            for (int64_t s = state_.rows[i].slot; s >= 0 && s < LORA_MAX_SCRATCH && !known[s];
                 s = state_.slots[s].parent)
                known[s] = true, slots++;
        uint64_t expected = 37 + (state_.selected_count + 1) / 2 + 10 * rows + 2 * slots +
                            (rows == 0);
        if (cycles != expected)
            fail("%u rows take %llu cycles, expected %llu", rows, (unsigned long long)cycles,
                 (unsigned long long)expected);
        counts_["measured"]++;
    }

    uint32_t found(uint32_t reader, uint32_t at, uint32_t bits) const {
        uint32_t value = 0;
        for (uint32_t i = 0, bit = reader * FOUND_BITS + at; i < bits; i++, bit++)
            value |= (model_->found[bit / 32] >> bit % 32 & 1) << i;
        return value;
    }

    void look_at_row(uint32_t reader, uint32_t asked, bool selected) {
        uint32_t number = selected ? state_.selected[asked] : asked;
        const lora_row &row = state_.rows[number];
        const uint32_t fields[] = {state_.lengths[row.sequence % LORA_MAX_SEQUENCES],
                                   row.flags,
                                   static_cast<uint32_t>(row.slot),
                                   static_cast<uint32_t>(row.adapter),
                                   row.token,
                                   row.position,
                                   row.sequence};
        if (found(reader, NUMBER_AT, 6) != number) fail("the number of row %u", asked);
        for (uint32_t i = 0; i < 7; i++)
            if (found(reader, 32 * i, 32) != fields[i]) fail("field %u of row %u", i, number);
        if (asked < state_.selected_count && found(reader, 7 * 32, 16) != state_.selected[asked])
            fail("selected row %u", asked);
        counts_[selected ? "selected" : "rows"]++;
    }

    void look() {
        VFeed &m = *model_;
        for (uint32_t at = LIST_FIRST; at < LIST_END; at += 4)
            if (m.header[at / 4] != word((list_at_ + at) / 4)) fail("byte %u of the list", at);
        for (uint32_t i = 0; i < 10; i++)
            if (m.step[i] != word(state_at_ / 4 + 1 + i)) fail("word %u of the step", 1 + i);
        uint32_t rows = state_.row_count, chosen = state_.selected_count;
        for (uint32_t i = 0; i < 2 * rows; i++) {
            uint32_t asked[READERS], packed = 0;
            m.row_selected = 0;
            for (uint32_t r = 0; r < READERS; r++) {
                bool selected = chosen && random_.once_in(2);
                asked[r] = random_.below(selected ? chosen : rows);
                if (selected && state_.selected[asked[r]] >= rows) selected = false;
                packed |= asked[r] << 6 * r;
                m.row_selected |= static_cast<uint8_t>(selected << r);
            }
            m.row = packed;
            uint8_t selected = m.row_selected;
            uint32_t slot = slot_of(asked[0]);
            m.slot = static_cast<uint8_t>(slot);
            cycle();
            for (uint32_t r = 0; r < READERS; r++) look_at_row(r, asked[r], selected >> r & 1);
            if (slot >= LORA_MAX_SCRATCH) continue;
            if (static_cast<int16_t>(m.slot_parent) != state_.slots[slot].parent)
                fail("the parent of slot %u", slot);
            counts_["slots"]++;
        }
    }

    // One of the row's path.
    uint32_t slot_of(uint32_t row) {
        int64_t slot = state_.rows[row].slot;
        for (uint32_t i = 0; i < LORA_MAX_SCRATCH && random_.once_in(2); i++) {
            if (slot < 0 || slot >= LORA_MAX_SCRATCH) break;
            int64_t next = state_.slots[slot].parent;
            if (next < 0 || next >= LORA_MAX_SCRATCH) break;
            slot = next;
        }
        return static_cast<uint32_t>(slot);
    }

    // The same step while units ask: nothing changes.
    void read_again() {
        start();
        uint32_t rows = state_.row_count;
        while (model_->busy) {
            uint32_t asked = rows ? random_.below(rows) : 0;
            model_->row = asked;
            model_->row_selected = 0;
            cycle();
            if (rows) look_at_row(0, asked, false);
        }
        look();
        counts_["read_again"]++;
    }

    Random random_;
    VerilatedContext context_{};
    std::unique_ptr<VFeed> model_;
    std::map<std::string, uint64_t> counts_;
    std::vector<uint8_t> memory_;
    lora_step_state state_{};
    uint32_t list_at_ = 0, state_at_ = 0, busy_ = 0, place_ = 0;
    bool taken_ = false;
};

} // namespace

int main(int count, char **arguments) {
    if (count != 3) fail("bench STEPS SEED");
    Bench bench(static_cast<uint32_t>(std::stoul(arguments[2])));
    bench.run(static_cast<uint32_t>(std::stoul(arguments[1])));
    return 0;
}
