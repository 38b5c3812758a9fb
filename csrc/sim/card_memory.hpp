// Board memory as a card addresses it: by the arenas' records that the host has given it.
#ifndef LORA_SIM_CARD_MEMORY_HPP
#define LORA_SIM_CARD_MEMORY_HPP

#include "sim.hpp"

#include <cstring>

class CardMemory {
  public:
    enum : uint32_t { REGISTERS = (LORA_REG_ARENAS + LORA_MAX_ARENAS * 32) / 4 };

    struct Place {
        bool found = false;
        uint32_t bank = 0;
        uint64_t offset = 0, left = 0; // bytes from there on
    };

    // `registers`: as the card has them.
    CardMemory(const lora_board_calls &calls, const uint32_t *registers)
        : calls_(calls), registers_(registers) {}

    Place place(uint64_t address) const {
        uint32_t count = registers_[LORA_REG_ARENA_COUNT / 4];
        for (uint32_t i = 0; i < count && i < LORA_MAX_ARENAS; i++) {
            lora_arena_record arena;
            std::memcpy(&arena, registers_ + LORA_REG_ARENAS / 4 + 8 * i, sizeof arena);
            if (!arena.valid || address - arena.base >= arena.bytes) continue;
            uint64_t within = address - arena.base;
            return {true, arena.bank, arena.offset + within, arena.bytes - within};
        }
        return {};
    }

    static Place onchip(uint64_t offset) {
        return {true, LORA_BANK_ONCHIP, offset, LORA_LINE_BYTES};
    }

    // False: an error is the answer.
    bool read_line(const Place &at, void *line) const {
        uint32_t bytes = at.left < LORA_LINE_BYTES ? uint32_t(at.left) : LORA_LINE_BYTES;
        std::memset(line, 0, LORA_LINE_BYTES);
        return at.found && !calls_.read(at.bank, at.offset, line, bytes);
    }

    // Bytes of a line by their bits.
    bool write_line(const Place &at, const uint8_t *line, uint64_t bytes) const {
        for (uint32_t i = 0, end; i < LORA_LINE_BYTES; i = end) { // runs of bytes
            for (end = i + 1; end < LORA_LINE_BYTES && !((bytes >> end ^ bytes >> i) & 1);) end++;
            if (!(bytes >> i & 1)) continue;
            if (!at.found || calls_.write(at.bank, at.offset + i, line + i, end - i)) return false;
        }
        return true;
    }

    const lora_board_calls &calls() const { return calls_; }

  private:
    static_assert(sizeof(lora_arena_record) == 32, "place() copies records");
    const lora_board_calls &calls_;
    const uint32_t *registers_;
};

#endif
