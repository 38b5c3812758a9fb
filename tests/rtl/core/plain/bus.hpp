// `control` as it is: one clock, plain ports to host and memory. Memory takes a request now and
// then and answers reads later where things are varied; else at once, and after the cycles that
// were set.
#ifndef LORA_TEST_BUS_HPP
#define LORA_TEST_BUS_HPP

#include "list_memory.hpp"
#include <link_pins.hpp>
#include "run_units.hpp"

#include "VControl.h"

#include <random>

class Bus {
    enum : uint32_t { LINE_WORDS = 16 };

  public:
    static constexpr uint32_t RESET_CYCLES = 2;

    static constexpr uint32_t HOLD_CYCLES = 1; // until a reset holds the core

    Bus(VControl &core, Memory memory, std::minstd_rand &random, bool varied)
        : core_(core), random_(random), varied_(varied), memory_(memory), list_(memory) {}

    void quiet() {
        core_.host_valid = core_.memory_error = 0;
        LinkPins::quiet(core_);
        list_.quiet(core_);
    }
    void release() {}
    void begin() { begun_ = true; }
    void advance() {}
    // Of all of it: what was asked is forgotten.
    void reset() {
        begun_ = false;
        list_.forget();
        list_.quiet(core_);
        answer_in_ = 0;
    }
    bool poison() const { return LinkPins::poison(core_); }
    bool link_test() const { return LinkPins::test(core_); }

    void drive() {
        drive_memory();
        bool waits = varied_ && random_() % 4 == 0;
        list_.drive(core_, varied_ ? 2 + random_() % 8 : read_cycles_, waits);
    }

    void see() {
        see_memory();
        list_.see(core_);
    }

    // The next eval, with the next inputs, sees that the clock has fallen.
    void rise() {
        core_.clk = 1;
        core_.eval();
        core_.clk = 0;
    }

    bool doorbell() const { return core_.host_valid && core_.host_write && core_.host_word == 0; }
    bool done() const { return core_.done; }
    void set_read_cycles(uint32_t cycles) { read_cycles_ = cycles; }
    // Accesses of that line fail; 1: of none.
    void set_bad_line(uint64_t line) {
        bad_line_ = line;
        list_.set_bad_line(line);
    }
    const char *failure() const { return ""; }

    // An access of the host, until `answered`.
    void ask(uint32_t word, bool write, uint32_t value) {
        core_.host_valid = 1;
        core_.host_write = write;
        core_.host_word = word;
        core_.host_stored = value;
    }
    // As `ask` for a read, which does not clear the done bit.
    void look(uint32_t word) { core_.host_word = word; }
    bool answered() {
        core_.host_valid = 0;
        core_.eval();
        return true;
    }
    uint32_t answer() const { return core_.host_data; }

  private:
    void drive_memory() {
        core_.memory_answers = 0;
        if (answer_in_ && --answer_in_ == 0) {
            core_.memory_answers = 1;
            core_.memory_error = asked_line_ == bad_line_;
            for (uint32_t i = 0; i < LINE_WORDS; i++) core_.memory_line[i] = answer_[i];
        } else {
            core_.memory_line[random_() % LINE_WORDS] = static_cast<uint32_t>(random_());
        }
        core_.memory_ready = !varied_ || random_() % 4 != 0;
    }

    void see_memory() {
        if (!begun_ || !core_.memory_valid || !core_.memory_ready) return;
        uint64_t address = core_.memory_address;
        if (core_.memory_write) {
            memory_(address, core_.memory_write, core_.memory_stored);
            return;
        }
        asked_line_ = address / 64 * 64;
        for (uint32_t i = 0; i < LINE_WORDS; i++) answer_[i] = memory_(asked_line_ + 4 * i, 0, 0);
        answer_in_ = varied_ ? 2 + random_() % 8 : read_cycles_;
    }

    VControl &core_;
    std::minstd_rand &random_;
    bool varied_, begun_ = false;
    Memory memory_;
    ListMemory list_;
    uint32_t read_cycles_ = 25;
    uint64_t answer_in_ = 0, asked_line_ = 0, bad_line_ = 1;
    uint32_t answer_[LINE_WORDS] = {};
};

#endif
