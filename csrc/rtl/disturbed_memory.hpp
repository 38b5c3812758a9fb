/* The memory of a run that a test ends early: the call's banks, banks whose changes are kept apart,
 * or values that are nobody's. All writes are noted. */
#ifndef LORA_RTL_DISTURBED_MEMORY_HPP
#define LORA_RTL_DISTURBED_MEMORY_HPP

#include <array>
#include <unordered_map>
#include <vector>

#include "board_memory.hpp"
#include "random.hpp"

struct NotedWrite {
    uint32_t bank, line;
    uint64_t bytes;
    std::array<uint8_t, LORA_LINE_BYTES> data; /* 0 where a byte is not written */

    bool same_place(const NotedWrite &other) const {
        return bank == other.bank && line == other.line && bytes == other.bytes;
    }
};

enum class MemoryKind { BANKS, APART, NOISE };

class DisturbedMemory {
  public:
    DisturbedMemory(const lora_unit_call *call, MemoryKind kind, uint64_t seed)
        : banks_(call), kind_(kind), noise_(seed) {}

    void read(uint32_t bank, uint32_t line, void *target) {
        auto *bytes = static_cast<uint8_t *>(target);
        if (kind_ == MemoryKind::NOISE) {
            for (uint32_t i = 0; i < LORA_LINE_BYTES; i++)
                bytes[i] = static_cast<uint8_t>(noise_.next());
            return;
        }
        banks_.read(bank, line, target);
        auto apart = apart_.find(key(bank, line));
        if (apart == apart_.end()) return;
        for (uint32_t i = 0; i < LORA_LINE_BYTES; i++)
            if (apart->second.bytes >> i & 1) bytes[i] = apart->second.data[i];
    }

    void write(uint32_t bank, uint32_t line, uint64_t bytes, const uint8_t *source) {
        NotedWrite noted{bank, line, bytes, {}};
        for (uint32_t i = 0; i < LORA_LINE_BYTES; i++)
            if (bytes >> i & 1) noted.data[i] = source[i];
        writes_.push_back(noted);
        if (kind_ == MemoryKind::BANKS) banks_.write(bank, line, bytes, source);
        if (kind_ != MemoryKind::APART) return;
        NotedWrite &apart = apart_.emplace(key(bank, line), NotedWrite{}).first->second;
        apart.bytes |= bytes;
        for (uint32_t i = 0; i < LORA_LINE_BYTES; i++)
            if (bytes >> i & 1) apart.data[i] = source[i];
    }

    bool failed() const { return banks_.failed(); }
    const std::vector<NotedWrite> &writes() const { return writes_; }

  private:
    static uint64_t key(uint32_t bank, uint32_t line) { return uint64_t{bank} << 32 | line; }

    BoardMemory banks_;
    MemoryKind kind_;
    Random noise_;
    std::unordered_map<uint64_t, NotedWrite> apart_;
    std::vector<NotedWrite> writes_;
};

#endif
