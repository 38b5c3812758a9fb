// control_clocks: the control's clock, the shell's, the memory's and two links', none a multiple of
// another. The host is an AXI4-Lite master that waits for the interrupt, board memory an AXI4
// slave. Both keep AXI's rules and see whether the other side does.
#ifndef LORA_TEST_BUS_HPP
#define LORA_TEST_BUS_HPP

#include "run_units.hpp"

#include "../axi_memory.hpp"
#include "../clocks.hpp"
#include "../lite_host.hpp"

#include "VControl.h"

#include <random>
#include <string>

class Bus {
    enum : uint32_t { CONTROL, HOST, MEMORY, LINK, CLOCKS = LINK + 2 };
    static constexpr uint64_t HALF = 1000; // of the control's clock
    static constexpr uint32_t GIE = 4, IER = 8, ISR = 12;

  public:
    static constexpr uint32_t RESET_CYCLES = 100;
    static constexpr uint32_t HOLD_CYCLES = 2; // until a reset holds the core

    Bus(VControl &core, Memory memory, std::minstd_rand &random, bool)
        : core_(core), clocks_(static_cast<uint32_t>(random())),
          host_(core, static_cast<uint32_t>(random())),
          memory_(core, memory, static_cast<uint32_t>(random())) {
        // from 1:5 to 5:1
        clocks_.add(HALF);
        for (uint32_t clock = HOST; clock < CLOCKS; clock++)
            clocks_.add(HALF / 5 + random() % (random() % 2 ? HALF : 5 * HALF));
        metastable::seed(static_cast<uint32_t>(random()));
        metastable::window = HALF / 12;
    }

    void quiet() {
        core_.host_clk = core_.memory_clk = core_.link_clk = 0;
        core_.host_rst = core_.memory_rst = 1;
        core_.link_rst = 3;
        core_.link_test_done = core_.link_test_failed = 0;
        host_.quiet();
        memory_.quiet();
        core_.eval();
    }
    void release() {
        core_.host_rst = core_.memory_rst = 0;
        core_.link_rst = 0;
    }
    void begin() {}
    void reset() {} // the control alone: memory brings to its end what was asked
    // The first link's, since the last call.
    bool poison() { return take(poisons_); }
    bool link_test() { return take(link_tests_); }

    // Other clocks, until the control's rises.
    void advance() {
        for (;;) {
            uint32_t clock = clocks_.next();
            bool rises = clocks_.level(clock);
            if (clock == CONTROL && rises) return;
            if (rises && clock == HOST) host_.see(), sees_interrupt();
            if (rises && clock == MEMORY) memory_.see();
            if (rises && clock == LINK) {
                poisons_ |= core_.link_poison & 1;
                link_tests_ |= core_.link_test_start & 1;
            }
            set(clock, rises);
            core_.eval();
            if (rises && clock == HOST) host_.drive();
            if (rises && clock == MEMORY) memory_.drive();
            core_.eval();
        }
    }

    void drive() {}
    void see() {}
    void rise() {
        set(CONTROL, true);
        core_.eval();
    }

    bool doorbell() {
        bool rang = rang_;
        rang_ = false;
        return rang;
    }

    // The interrupt, as the host sees it: enabled where it is not, acknowledged where it was seen.
    bool done() { return interrupted_; }

    void set_read_cycles(uint32_t cycles) { memory_.latency = cycles; }

    // Accesses of that line fail; 1: of none.
    void set_bad_line(uint64_t bad) {
        memory_.bad = [bad](uint64_t line) { return line == bad; };
    }

    const char *failure() const {
        if (!host_.broken().empty()) return host_.broken().c_str();
        return memory_.broken().c_str();
    }

    void ask(uint32_t word, bool write, uint32_t value) {
        rings_ = word == 0 && write && (value & 1);
        if (word == 0) interrupted_ = false; // a start, or a read, which clears done
        steps_ = rings_ ? 3 : 0;
        word_ = word;
        write_ = write;
        value_ = value;
        next();
    }
    // There is no other way to a register than a read.
    void look(uint32_t word) { ask(word, false, 0); }
    bool answered() {
        if (host_.pending()) return false;
        if (steps_) {
            steps_--;
            next();
            return false;
        }
        rang_ = rings_;
        if (rings_) interrupted_ = false; // the line was high until ISR was written
        return true;
    }
    uint32_t answer() const { return host_.data; }

  private:
    static bool take(bool &pulse) {
        bool any = pulse;
        pulse = false;
        return any;
    }

    // Before a start: both enables, and what an earlier run has left in ISR.
    void next() {
        if (steps_ == 3) host_.ask(GIE, true, 1);
        else if (steps_ == 2) host_.ask(IER, true, 1);
        else if (steps_ == 1) host_.ask(ISR, true, interrupt());
        else host_.ask(4 * word_, write_, value_);
    }

    bool interrupt() const { return core_.__SYM__interrupt; } // a word of C++

    void sees_interrupt() {
        if (interrupt() && !host_.pending()) interrupted_ = true;
    }

    void set(uint32_t clock, bool level) {
        if (clock == CONTROL) core_.clk = level;
        else if (clock == HOST) core_.host_clk = level;
        else if (clock == MEMORY) core_.memory_clk = level;
        else core_.link_clk = (core_.link_clk & ~(1u << (clock - LINK))) | level << (clock - LINK);
    }

    VControl &core_;
    Clocks clocks_;
    LiteHost<VControl> host_;
    AxiMemory<VControl> memory_;
    uint32_t word_ = 0, value_ = 0, steps_ = 0;
    bool write_ = false, rings_ = false, rang_ = false, interrupted_ = false;
    bool poisons_ = false, link_tests_ = false;
};

#endif
