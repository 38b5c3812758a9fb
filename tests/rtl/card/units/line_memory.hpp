// Board memory and the on-chip buffer of an emulated board, by lines, for the units of a card:
// reads are answered in any order, writes are there when they are told to be. Where
// LORA_TEST_LATENCY has a number, each is over so many cycles after it was taken, one of each a
// cycle, in order.
#ifndef LORA_TEST_LINE_MEMORY_HPP
#define LORA_TEST_LINE_MEMORY_HPP

#include "VControl.h"
#include <latency.hpp>

extern "C" {
#include "hal.h"
int card_read_fails(void);
}

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

class LineMemory {
  public:
    void quiet(VControl &c) {
        c.lines_read_ready = c.lines_write_ready = 0;
        c.lines_line_valid = c.lines_written = 0;
    }

    void forget() {
        reads_.clear();
        writes_.clear();
    }

    bool busy() const { return !reads_.empty() || !writes_.empty(); }

    void drive(VControl &c) {
        cycle_++;
        c.lines_read_ready = test_latency() || random_() % 8 != 0;
        c.lines_write_ready = test_latency() || random_() % 8 != 0;
        c.lines_line_valid = answers(reads_);
        c.lines_written = answers(writes_);
        c.lines_line_error = c.lines_written_error = 0;
        if (c.lines_line_valid) {
            Request it = any(reads_);
            c.lines_line_tag = it.number;
            hal_read(it.bank, it.offset, &c.lines_line_data[0], LORA_LINE_BYTES);
            c.lines_line_error = card_read_fails() != 0;
        }
        if (!c.lines_written) return;
        Request it = any(writes_);
        c.lines_written_id = static_cast<uint8_t>(it.number);
        for (uint32_t i = 0, end; i < LORA_LINE_BYTES; i = end) { // runs of bytes
            for (end = i + 1; end < LORA_LINE_BYTES && !((it.bytes >> end ^ it.bytes >> i) & 1);)
                end++;
            if (it.bytes >> i & 1) hal_write(it.bank, it.offset + i, it.data + i, end - i);
        }
        hal_fence(it.bank, it.offset); // it is there when it is answered
    }

    void see(VControl &c) {
        if (c.lines_read_valid && c.lines_read_ready)
            reads_.push_back(place(c.lines_read_onchip, c.lines_read_line, c.lines_read_tag));
        if (!c.lines_write_valid || !c.lines_write_ready) return;
        Request it = place(c.lines_write_onchip, c.lines_write_line, c.lines_write_id);
        it.bytes = c.lines_write_bytes;
        std::memcpy(it.data, &c.lines_write_data[0], LORA_LINE_BYTES);
        writes_.push_back(it);
    }

  private:
    struct Request {
        uint32_t bank, number;
        uint64_t offset, due = 0, bytes = 0;
        uint8_t data[LORA_LINE_BYTES] = {};
    };

    bool answers(const std::vector<Request> &from) {
        if (from.empty()) return false;
        return test_latency() ? from.front().due <= cycle_ : random_() % 4 != 0;
    }

    Request any(std::vector<Request> &from) {
        size_t at = test_latency() ? 0 : random_() % from.size();
        Request found = from[at];
        from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
        return found;
    }

    // The arena's records say where an address lies.
    Request place(bool onchip, uint64_t line, uint32_t number) const {
        Request found;
        found.number = number;
        found.due = cycle_ + test_latency();
        found.bank = LORA_BANK_ONCHIP;
        found.offset = line * LORA_LINE_BYTES;
        if (onchip) return found;
        uint64_t address = found.offset;
        for (uint32_t i = 0; i < hal_register(LORA_REG_ARENA_COUNT); i++) {
            lora_arena_record arena;
            uint32_t words[sizeof arena / 4];
            for (uint32_t w = 0; w < sizeof arena / 4; w++)
                words[w] = hal_register(LORA_REG_ARENAS + i * uint32_t(sizeof arena) + 4 * w);
            std::memcpy(&arena, words, sizeof arena);
            if (!arena.valid || address - arena.base >= arena.bytes) continue;
            found.bank = arena.bank;
            found.offset = arena.offset + (address - arena.base);
            return found;
        }
        std::fprintf(stderr, "card: line %#llx of no arena\n", (unsigned long long)line);
        std::abort();
    }

    std::vector<Request> reads_, writes_;
    uint64_t cycle_ = 0;
    std::minstd_rand random_;
};

#endif
