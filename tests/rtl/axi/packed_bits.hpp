// One of the equal parts of a packed signal, whatever type the simulator gives it.
#ifndef LORA_TEST_PACKED_BITS_HPP
#define LORA_TEST_PACKED_BITS_HPP

#include <cstdint>
#include <type_traits>

inline uint64_t low_bits(uint32_t width) { return width == 64 ? ~0ull : (1ull << width) - 1; }

// Part `place` of `width` bits, at most 64.
template <class Signal> uint64_t packed(const Signal &signal, uint32_t place, uint32_t width) {
    uint32_t first = place * width;
    if constexpr (std::is_integral_v<Signal>) {
        return uint64_t(signal) >> first & low_bits(width);
    } else {
        uint64_t found = 0;
        for (uint32_t i = 0; i < width;) { // by words of 32 bits
            uint32_t at = first + i, count = 32 - at % 32;
            found |= uint64_t(signal[at / 32]) >> at % 32 << i;
            i += count;
        }
        return found & low_bits(width);
    }
}

template <class Signal> void pack(Signal &signal, uint32_t place, uint32_t width, uint64_t value) {
    uint32_t first = place * width;
    if constexpr (std::is_integral_v<Signal>) {
        uint64_t mask = low_bits(width) << first;
        signal = static_cast<Signal>((uint64_t(signal) & ~mask) | (value << first & mask));
    } else {
        for (uint32_t i = 0; i < width;) {
            uint32_t at = first + i, count = 32 - at % 32 < width - i ? 32 - at % 32 : width - i;
            uint32_t mask = static_cast<uint32_t>(low_bits(count)) << at % 32;
            signal[at / 32] = (signal[at / 32] & ~mask) | (uint32_t(value >> i) << at % 32 & mask);
            i += count;
        }
    }
}

#endif
