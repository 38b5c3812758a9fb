/* The bank memory of a call as the units' ports see it: lines of 64 bytes, ranges checked. */
#ifndef LORA_RTL_BOARD_MEMORY_HPP
#define LORA_RTL_BOARD_MEMORY_HPP

#include <cstdint>
#include <cstring>

#include "lora/abi.h"
#include "lora/kernels.h"

class BoardMemory {
  public:
    explicit BoardMemory(const lora_unit_call *call) : call_(call) {}

    /* What lies past the bank's end reads as ones; a line that begins there is an error. */
    void read(uint32_t bank, uint64_t line, void *target) {
        uint64_t left = room(bank, line * LORA_LINE_BYTES);
        if (left >= LORA_LINE_BYTES) {
            std::memcpy(target, call_->banks[bank] + line * LORA_LINE_BYTES, LORA_LINE_BYTES);
            return;
        }
        std::memset(target, 0xff, LORA_LINE_BYTES);
        if (left == 0) failed_ = true;
        else std::memcpy(target, call_->banks[bank] + line * LORA_LINE_BYTES, left);
    }

    /* `bytes`: bit i writes byte i of the line. */
    void write(uint32_t bank, uint64_t line, uint64_t bytes, const uint8_t *source) {
        uint64_t left = room(bank, line * LORA_LINE_BYTES);
        for (uint32_t i = 0; i < LORA_LINE_BYTES; i++) {
            if (!(bytes >> i & 1)) continue;
            if (i >= left) failed_ = true;
            else call_->banks[bank][line * LORA_LINE_BYTES + i] = source[i];
        }
    }

    bool failed() const { return failed_; }

  private:
    uint64_t room(uint32_t bank, uint64_t offset) const {
        if (bank > LORA_BANK_ONCHIP || !call_->banks[bank] || offset >= call_->bank_bytes[bank])
            return 0;
        return call_->bank_bytes[bank] - offset;
    }

    const lora_unit_call *call_;
    bool failed_ = false;
};

#endif
