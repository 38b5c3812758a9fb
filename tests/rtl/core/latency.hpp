// Board memory that always answers after the same number of cycles, where a test measures: that of
// LORA_TEST_LATENCY. 0: as it happens.
#ifndef LORA_TEST_LATENCY_HPP
#define LORA_TEST_LATENCY_HPP

#include <cstdint>
#include <cstdlib>

inline uint32_t test_latency() {
    static const uint32_t cycles = [] {
        const char *text = getenv("LORA_TEST_LATENCY");
        return text ? static_cast<uint32_t>(strtoul(text, nullptr, 10)) : 0;
    }();
    return cycles;
}

#endif
