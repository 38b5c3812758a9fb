/* Numbers of tests: the same for the same seed. */
#ifndef LORA_RTL_RANDOM_HPP
#define LORA_RTL_RANDOM_HPP

#include <cstdint>

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() { /* splitmix64 */
        uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        return z ^ z >> 31;
    }
    /* 0 .. count - 1 */
    uint32_t below(uint64_t count) { return static_cast<uint32_t>(next() % count); }
    bool once_in(uint32_t count) { return below(count) == 0; }

  private:
    uint64_t state_;
};

#endif
