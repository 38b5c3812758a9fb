// The memory and the links of a card, which has all units itself: in the place of
// ../../core/run_units.hpp.
#ifndef LORA_TEST_RUN_UNITS_HPP
#define LORA_TEST_RUN_UNITS_HPP

#include "VControl.h"
#include "VControl___024root.h"
#include "frames.hpp"
#include "line_memory.hpp"
#include "units.hpp"
#include <times.hpp>

#include <cstdint>
#include <deque>
#include <tuple>
#include <utility>

// A word of board memory: reads (no `bytes`) return it.
using Memory = uint32_t (*)(uint64_t address, uint32_t bytes, uint32_t data);

class RunUnits {
  public:
    explicit RunUnits(Units &) {}

    void quiet(VControl &c) {
        lines_.quiet(c);
        frames_.quiet(c);
    }

    void drive(VControl &c, uint64_t) {
        c.identity[1] = hal_register(LORA_REG_IDENTITY_SERIAL);
        lines_.drive(c);
        frames_.drive(c);
    }

    void see(VControl &c, uint64_t cycle) {
        if (c.rst) return; // registers begin with any bits
        if (Times::all().wanted()) see_commands(c, cycle);
        lines_.see(c);
        frames_.see(c);
        if (c.router_wrote) local_.emplace_back(4 * c.router_word, c.router_stored);
    }

    // What the Router has written to the core's memory.
    bool take_local(uint32_t &place, uint32_t &value) {
        if (local_.empty()) return false;
        std::tie(place, value) = local_.front();
        local_.pop_front();
        return true;
    }

    void reset() {
        lines_.forget();
        frames_.forget();
    }

    void begin(uint64_t) {}
    bool moved() { return true; } // nobody needs to be asked for anything
    bool works() const { return false; }
    bool stopped_router() { return false; }

  private:
    // Commands of lists that begin or end in this cycle (../units.vlt).
    void see_commands(VControl &c, uint64_t cycle) {
        uint32_t begins = c.rootp->card__DOT__run_starts;
        uint32_t ends = c.rootp->card__DOT__valid & c.rootp->card__DOT__ready & running_;
        running_ = (running_ & ~ends) | begins;
        for (uint32_t unit = 0; unit < LORA_UNITS; unit++) {
            if (!((begins | ends) >> unit & 1)) continue;
            uint32_t index = 0;
            for (uint32_t bit = 0, at = 14 * unit; bit < 14; bit++, at++)
                index |= (c.run_index[at / 32] >> at % 32 & 1) << bit;
            Times::all().command(c.identity[1], cycle, index, ends >> unit & 1);
        }
    }

    uint32_t running_ = 0; // units
    LineMemory lines_;
    Frames frames_;
    std::deque<std::pair<uint32_t, uint32_t>> local_;
};

#endif
