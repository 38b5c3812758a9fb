// The rates of a card's banks: a bank gives its lines to whoever asks, one after the other.
#ifndef LORA_SIM_BANKS_HPP
#define LORA_SIM_BANKS_HPP

#include "card_memory.hpp"
#include "timing.hpp"

class Banks {
    enum : uint32_t { BANKS = LORA_MAX_BANKS + 1 };

  public:
    explicit Banks(const lora_sim_config &config) {
        for (uint32_t bank = 0; bank < BANKS; bank++)
            banks_[bank] = Pace(config.line_spacing[bank]);
    }
    Pace &operator[](uint32_t bank) { return banks_[bank]; }
    Pace &of(const CardMemory::Place &place) { return banks_[place.bank % BANKS]; }

  private:
    Pace banks_[BANKS];
};

#endif
