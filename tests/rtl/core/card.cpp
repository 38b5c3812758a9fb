// A board's control as a library: the caller plays host, board memory and units. Beside the
// core runs the reference: what an instruction writes is compared. Seed 0: memory takes each
// request and answers after the cycles that were set; others: both as it happens.
#include "run_units.hpp"

#include "VControl.h"
#include "reference.h"
#include "verilated.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <random>

namespace {

enum : uint32_t {
    CONTROL = 0,
    STATUS = 1,
    COMMAND = 16,
    COMMAND_WORDS = 16,
    LINE_WORDS = 16,
    RESULT_WORDS = 8,
    DONE = 2
};
constexpr uint32_t CLEAR_CYCLES = 300;

class Card {
  public:
    Card(uint32_t seed, Memory memory, Start start)
        : random_(seed), varied_(seed != 0), memory_(memory), start_(start), units_(start),
          list_(memory) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed & 0x7fffffff) | 1);
        core_ = std::make_unique<VControl>(&context_);
        core_->clk = 0;
        core_->rst = core_->restart = 1;
        core_->load_valid = core_->host_valid = core_->unit_write = 0;
        core_->link_test_done = core_->link_test_failed = 0;
        units_.quiet(*core_);
        list_.quiet(*core_);
        clock();
        clock();
        core_->rst = 0;
        clock();
        begun_ = true;
    }

    // The control program begins, again if it ran. Before the first time each register gets a value
    // that the reference knows.
    void begin(const uint8_t *code, uint32_t bytes) {
        if (instructions_ == 0) {
            uint32_t words[63];
            for (uint32_t r = 1; r < 32; r++) {
                words[2 * r - 2] = static_cast<uint32_t>(random_()) << 12 | r << 7 | 0x37;
                words[2 * r - 1] = static_cast<uint32_t>(random_()) << 20 | r << 15 | r << 7 | 0x13;
            }
            words[62] = 0x00100073; // ebreak
            load(reinterpret_cast<uint8_t *>(words), sizeof words);
            while (!core_->stopped) clock();
        }
        load(code, bytes);
        for (uint32_t i = 0; i < CLEAR_CYCLES; i++) clock(); // of the host's registers
    }

    // Until the done bit, some cycles later, or until the core has stopped.
    void run(uint64_t cycles) {
        for (uint64_t end = cycle_ + cycles;
             cycle_ != end && !core_->done && !core_->stopped && !differs_;)
            clock();
    }

    uint32_t host_read(uint32_t word) {
        host(word, false, 0);
        return core_->host_data;
    }

    void host_write(uint32_t word, uint32_t value) { host(word, true, value); }

    void set_read_cycles(uint32_t cycles) { read_cycles_ = cycles; }
    RunUnits &units() { return units_; }
    VControl &core() { return *core_; }
    uint64_t cycle() const { return cycle_; }
    uint64_t instructions() const { return instructions_; }
    const char *difference() const { return difference_; }

  private:
    // By the loader's port, while the core is held.
    void load(const uint8_t *code, uint32_t bytes) {
        core_->restart = 1;
        clock();
        for (uint32_t at = 0; at < bytes; at += 4) {
            uint32_t word = 0;
            memcpy(&word, code + at, bytes - at < 4 ? bytes - at : 4);
            core_->load_valid = 1;
            core_->load_write = 0xf;
            core_->load_word = at / 4;
            core_->load_stored = word;
            core_->eval();
            while (!core_->load_ready) clock();
            clock();
        }
        core_->load_valid = 0;
        core_->restart = 0;
        memcpy(reference_.memory, code, bytes);
        reference_.pc = 0;
        reference_.bus = read_as_found;
        reference_.context = this;
    }

    // What the blocks answer is the hardware's own: the value that was loaded.
    static int read_as_found(void *context, bus_access *access) {
        auto &core = *static_cast<Card *>(context)->core_;
        if (!access->bytes) access->data = core.retired_value << 8 * (access->address & 3);
        return 1;
    }

    void compare() {
        retired expected;
        uint32_t cause = reference_step(&reference_, &expected);
        instructions_++;
        bool same = core_->retired_pc == expected.pc && core_->retired_writes == expected.writes &&
                    (!expected.writes ||
                     (core_->retired_rd == expected.rd && core_->retired_value == expected.value));
        if ((same && !cause) || differs_) return;
        differs_ = true;
        snprintf(difference_, sizeof difference_,
                 "%#x writes %u: x%u = %#x; expected %#x, %u: x%u = %#x, cause %u",
                 core_->retired_pc, core_->retired_writes, core_->retired_rd, core_->retired_value,
                 expected.pc, expected.writes, expected.rd, expected.value, cause);
    }

    void host(uint32_t word, bool write, uint32_t value) {
        core_->host_valid = 1;
        core_->host_write = write;
        core_->host_word = word;
        core_->host_stored = value;
        clock();
        core_->host_valid = 0;
        core_->eval();
    }

    // Memory takes a request now and then, and answers reads later.
    void drive_memory() {
        core_->memory_answers = 0;
        if (answer_in_ && --answer_in_ == 0) {
            core_->memory_answers = 1;
            for (uint32_t i = 0; i < LINE_WORDS; i++) core_->memory_line[i] = answer_[i];
        } else {
            core_->memory_line[random_() % LINE_WORDS] = static_cast<uint32_t>(random_());
        }
        core_->memory_ready = !varied_ || random_() % 4 != 0;
        core_->eval();
        if (!begun_ || !core_->memory_valid || !core_->memory_ready) return;
        uint64_t address = core_->memory_address;
        if (core_->memory_write) {
            memory_(address, core_->memory_write, core_->memory_stored);
            return;
        }
        for (uint32_t i = 0; i < LINE_WORDS; i++)
            answer_[i] = memory_(address / 64 * 64 + 4 * i, 0, 0);
        answer_in_ = varied_ ? 2 + random_() % 8 : read_cycles_;
    }

    // A unit that was started reads its command, a word a cycle, and is done.
    void drive_units() {
        core_->unit_write = 0;
        if (started_.empty()) return;
        core_->unit_which = started_.front();
        uint32_t now = unit_cycle_++;
        if (now > 0 && now <= COMMAND_WORDS) command_[now - 1] = core_->unit_data;
        core_->unit_word = COMMAND + now % COMMAND_WORDS;
        if (now < COMMAND_WORDS) return;
        if (now == COMMAND_WORDS) (void)start_(started_.front(), command_);
        result(now - COMMAND_WORDS);
    }

    // Words STATUS to FRAMES_DROPPED, then the control word.
    void result(uint32_t number) {
        bool last = number == RESULT_WORDS;
        core_->unit_write = 1;
        core_->unit_word = last ? uint32_t(CONTROL) : STATUS + number;
        core_->unit_stored = last ? uint32_t(DONE) : 0;
        if (!last) return;
        started_.pop_front();
        unit_cycle_ = 0;
    }

    void clock() {
        drive_memory();
        drive_units();
        bool waits = varied_ && random_() % 4 == 0;
        list_.drive(*core_, varied_ ? 2 + random_() % 8 : read_cycles_, waits);
        units_.drive(*core_, varied_ ? random_() % 16 : 0);
        core_->eval();
        if (core_->retired && !core_->rst && begun_) compare();
        list_.see(*core_);
        units_.see(*core_, cycle_);
        if (core_->host_valid && core_->host_write && core_->host_word == 0) units_.begin(cycle_);
        core_->clk = 1;
        core_->eval();
        core_->clk = 0;
        core_->eval();
        for (uint32_t unit = 0; unit < 8; unit++)
            if (core_->mail_start >> unit & 1) started_.push_back(unit);
        cycle_++;
    }

    std::minstd_rand random_;
    bool varied_, differs_ = false, begun_ = false;
    char difference_[200] = "";
    machine reference_ = {};
    Memory memory_;
    Start start_;
    RunUnits units_;
    ListMemory list_;
    uint32_t read_cycles_ = 25;
    VerilatedContext context_;
    std::unique_ptr<VControl> core_;
    uint64_t cycle_ = 0, instructions_ = 0, answer_in_ = 0;
    uint32_t answer_[LINE_WORDS] = {}, command_[COMMAND_WORDS] = {};
    std::deque<uint32_t> started_;
    uint32_t unit_cycle_ = 0;
};

Card *card_of(void *card) { return static_cast<Card *>(card); }

} // namespace

extern "C" {

void *card_new(uint32_t seed, Memory memory, Start start) { return new Card(seed, memory, start); }
void card_delete(void *card) { delete card_of(card); }
void card_begin(void *card, const uint8_t *code, uint32_t bytes) {
    card_of(card)->begin(code, bytes);
}
void card_run(void *card, uint64_t cycles) { card_of(card)->run(cycles); }
uint32_t card_host_read(void *card, uint32_t word) { return card_of(card)->host_read(word); }
void card_host_write(void *card, uint32_t word, uint32_t value) {
    card_of(card)->host_write(word, value);
}
uint64_t card_cycles(void *card) { return card_of(card)->cycle(); }
uint64_t card_instructions(void *card) { return card_of(card)->instructions(); }

void card_read_cycles(void *card, uint32_t cycles) { card_of(card)->set_read_cycles(cycles); }
// Cycles that a command of a list takes on a unit.
void card_duration(void *card, uint32_t unit, uint64_t cycles) {
    card_of(card)->units().set_duration(unit, cycles);
}
// Of the last doorbell: commands that the sequencer started; cycles to the first; cycles between
// them in which no unit ran; the cycle in which the last one ended.
void card_measured(void *card, uint64_t found[4]) { card_of(card)->units().measured(found); }

const char *card_difference(void *card) { return card_of(card)->difference(); }

// Why the core has stopped, 0 if it runs.
uint32_t card_stopped(void *card, uint32_t *pc) {
    VControl &core = card_of(card)->core();
    *pc = core.stopped_pc;
    return core.stopped ? core.stopped_cause : 0;
}

} // extern "C"
