// When a card's surroundings answer: by the board's times, or now and then where a test has given a
// seed.
#ifndef LORA_SIM_TIMING_HPP
#define LORA_SIM_TIMING_HPP

#include "sim.hpp"

#include <random>

// Times between events of a rate that is no whole number of cycles.
class Pace {
  public:
    explicit Pace(uint32_t spacing = 0) : spacing_(spacing) {}

    // Or becomes free within this cycle: no part of one is lost between two events.
    bool free(uint64_t now) const { return free_ < (now + 1) << 16; }
    // The first cycle from `now` on at which one may be.
    uint64_t take(uint64_t now) {
        if (free_ < now << 16) free_ = now << 16;
        uint64_t at = (free_ + 0xffff) >> 16;
        free_ += spacing_;
        return at;
    }

  private:
    uint64_t free_ = 0, spacing_; // in 1/65536
};

class Timing {
  public:
    explicit Timing(const lora_sim_config &config) : config(config), random_(config.seed) {}

    const lora_sim_config config;
    bool random() const { return config.seed != 0; }
    // Where times are by chance: not in one of `of` cases.
    bool unless(uint32_t of) { return !random() || random_() % of != 0; }
    uint32_t below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }

  private:
    std::minstd_rand random_;
};

#endif
