// Clocks that know nothing of each other: each has its own period, which drifts. The time of the
// next edge of any is chosen; no two edges fall together.
#ifndef LORA_TEST_CLOCKS_HPP
#define LORA_TEST_CLOCKS_HPP

#include "metastable.hpp"

#include <cstdint>
#include <random>
#include <vector>

class Clocks {
  public:
    explicit Clocks(uint32_t seed) : chance_(seed) {}

    // Half a period in units of time: its mean. It drifts by up to a tenth, and jitters.
    void add(uint64_t half) {
        clocks_.push_back({half, 0, metastable::now + 1 + chance_() % (2 * half), false});
        clocks_.back().drift = drift(half);
    }

    void change(uint32_t clock, uint64_t half) { clocks_[clock].half = half; }

    // The clock that has the next edge; metastable::now is its time.
    uint32_t next() {
        uint32_t first = 0;
        for (uint32_t i = 1; i < clocks_.size(); i++)
            if (clocks_[i].at < clocks_[first].at) first = i;
        Clock &clock = clocks_[first];
        metastable::now = clock.at;
        clock.level = !clock.level;
        if (chance_() % 256 == 0) clock.drift = drift(clock.half);
        uint64_t jitter = chance_() % (clock.half / 16 + 1);
        clock.at += clock.half + uint64_t(clock.drift) + jitter;
        for (uint32_t i = 0; i < clocks_.size(); i++)
            if (i != first && clocks_[i].at == clock.at) clock.at++;
        return first;
    }

    bool level(uint32_t clock) const { return clocks_[clock].level; }

  private:
    struct Clock {
        uint64_t half;
        int64_t drift;
        uint64_t at;
        bool level;
    };

    int64_t drift(uint64_t half) {
        return int64_t(chance_() % (half / 5 + 1)) - int64_t(half / 10);
    }

    std::vector<Clock> clocks_;
    std::mt19937 chance_;
};

#endif
