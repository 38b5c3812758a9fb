// Arenas as a host writes them, and where a line of a bank lies by them.
#ifndef LORA_RTL_ARENAS_RECORDS_HPP
#define LORA_RTL_ARENAS_RECORDS_HPP

#include <map>
#include <vector>

#include "lora/abi.h"
#include "random.hpp"

struct Place { // where a line lies, if anywhere
    bool refused = true, onchip = false;
    uint64_t line = 0;
    bool operator==(const Place &other) const {
        return refused == other.refused && onchip == other.onchip && line == other.line;
    }
};
struct Where {
    uint32_t bank;
    uint64_t line;
};

class Records {
  public:
    static constexpr uint64_t BANK_LINES = 1ull << 32;

    Records(Random &random, std::vector<uint32_t> banks)
        : random_(random), banks_(std::move(banks)) {}

    const std::vector<lora_arena_record> &all() const { return records_; }
    bool full() const { return records_.size() + 2 >= LORA_MAX_ARENAS; }
    void add(const lora_arena_record &record) { records_.push_back(record); }
    void drop() { records_.pop_back(); }
    void clear() { records_.clear(), ends_.clear(); }

    // One more: at the end of its bank or behind a gap. One in four is none and covers what others
    // do.
    lora_arena_record next() {
        lora_arena_record record = next_arena(banks_[random_.below(banks_.size())]);
        if (random_.once_in(4)) {
            record.offset = 0, record.bytes = 1 << 20;
            if (random_.once_in(2)) record.valid = 2;
            else record.bank += 64;
        }
        return record;
    }

    // An arena lies elsewhere from now on.
    const lora_arena_record &move(uint32_t number) {
        records_[number].base ^= 1ull << 40;
        return records_[number];
    }

    Place place(const Where &it) const {
        for (const auto &record : records_) {
            uint64_t first = record.offset / LORA_LINE_BYTES;
            if (record.bank != it.bank || !(record.valid & 1) || it.line < first ||
                it.line - first >= record.bytes / LORA_LINE_BYTES)
                continue;
            return {false, false, (record.base / LORA_LINE_BYTES + it.line - first) % (1ull << 42)};
        }
        return {};
    }

    // A line in an arena or at an edge of one.
    Where any() {
        const auto &record = records_[random_.below(records_.size())];
        uint64_t first = record.offset / LORA_LINE_BYTES, lines = record.bytes / LORA_LINE_BYTES;
        uint64_t at = random_.once_in(12) ? (random_.once_in(2) ? first - 1 : first + lines)
                                          : first + random_.below(lines);
        return {record.bank % 64, at % BANK_LINES};
    }

  private:
    lora_arena_record next_arena(uint32_t bank) {
        uint64_t &end = ends_[bank], lines = 1 + random_.below(40);
        if (random_.once_in(2)) end += 1 + random_.below(9);
        if (random_.once_in(8) && end < BANK_LINES / 2) end = BANK_LINES - 500;
        lora_arena_record record{};
        record.base = (random_.next() & ((1ull << 35) - 1)) << 12 |
                      LORA_LINE_BYTES * random_.below(2);
        record.offset = end * LORA_LINE_BYTES;
        record.bytes = lines * LORA_LINE_BYTES;
        record.bank = bank;
        record.valid = 1;
        end += lines;
        return record;
    }

    Random &random_;
    std::vector<uint32_t> banks_;
    std::vector<lora_arena_record> records_;
    std::map<uint32_t, uint64_t> ends_;
};

#endif
