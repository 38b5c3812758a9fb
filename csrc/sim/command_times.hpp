// When a card's commands and operations begin and end, for who measures.
#ifndef LORA_SIM_COMMAND_TIMES_HPP
#define LORA_SIM_COMMAND_TIMES_HPP

#include "VCard.h"
#include "VCard___024root.h"
#include "sim.hpp"

class CommandTimes {
    enum : uint32_t { INDEX_BITS = 14 };

  public:
    CommandTimes(const lora_sim_config &config, uint32_t serial)
        : told_(config.told), serial_(serial) {}

    void operation(uint64_t cycle, bool ends) const {
        if (told_) told_(serial_, cycle, LORA_SIM_OPERATION, ends);
    }

    // Commands of lists, in the cycle that comes.
    void see(const VCard &c, uint64_t cycle) {
        if (!told_) return;
        uint32_t begins = c.rootp->card__DOT__run_starts;
        uint32_t ends = c.rootp->card__DOT__valid & c.rootp->card__DOT__ready & running_;
        running_ = (running_ & ~ends) | begins;
        for (uint32_t unit = 0; unit < LORA_UNITS; unit++)
            if ((begins | ends) >> unit & 1)
                told_(serial_, cycle, index(c, unit), ends >> unit & 1);
    }

  private:
    static uint32_t index(const VCard &c, uint32_t unit) {
        uint32_t found = 0;
        for (uint32_t bit = 0, at = INDEX_BITS * unit; bit < INDEX_BITS; bit++, at++)
            found |= (c.run_index[at / 32] >> at % 32 & 1) << bit;
        return found;
    }

    void (*const told_)(uint32_t, uint64_t, uint32_t, uint32_t);
    const uint32_t serial_;
    uint32_t running_ = 0; // units
};

#endif
