// The control's own ways to board memory: words, of which a read brings the whole line, and lists
// in bursts of lines.
#ifndef LORA_SIM_CONTROL_MEMORY_HPP
#define LORA_SIM_CONTROL_MEMORY_HPP

#include "VCard.h"
#include "card_memory.hpp"
#include "timing.hpp"

class WordMemory {
  public:
    WordMemory(const CardMemory &memory, Timing &timing) : memory_(memory), timing_(timing) {}

    void drive(VCard &c, uint64_t now) {
        c.memory_answers = waits_ && due_ <= now;
        if (c.memory_answers) {
            waits_ = false;
            c.memory_error = error_;
            std::memcpy(&c.memory_line[0], line_, sizeof line_);
        }
        c.memory_ready = timing_.unless(4);
    }

    void see(const VCard &c, uint64_t now) {
        if (!c.memory_valid || !c.memory_ready) return;
        uint64_t address = c.memory_address, line = address / LORA_LINE_BYTES * LORA_LINE_BYTES;
        CardMemory::Place at = memory_.place(line);
        if (c.memory_write) {
            uint32_t shift = static_cast<uint32_t>(address - line) & ~3u;
            uint32_t stored = c.memory_stored;
            std::memcpy(line_ + shift, &stored, sizeof stored);
            memory_.write_line(at, line_, static_cast<uint64_t>(c.memory_write) << shift);
            return;
        }
        error_ = !memory_.read_line(at, line_);
        waits_ = true;
        due_ = now + (timing_.random() ? 2 + timing_.below(8) : timing_.config.latency);
    }

  private:
    const CardMemory &memory_;
    Timing &timing_;
    bool waits_ = false, error_ = false;
    uint64_t due_ = 0;
    uint8_t line_[LORA_LINE_BYTES] = {};
};

class ListMemory {
  public:
    ListMemory(const CardMemory &memory, Timing &timing) : memory_(memory), timing_(timing) {}

    void drive(VCard &c, uint64_t now) {
        bool stalls = !timing_.unless(4);
        c.ar_ready = !stalls;
        c.r_valid = left_ && due_ <= now && (offered_ || !stalls);
        c.r_last = left_ == 1;
        if (!c.r_valid) return;
        if (!offered_) error_ = !memory_.read_line(memory_.place(address_), line_);
        std::memcpy(&c.r_data[0], line_, sizeof line_);
        c.r_error = error_;
        offered_ = true;
    }

    void see(const VCard &c, uint64_t now) {
        if (c.r_valid && c.r_ready) {
            left_--;
            address_ += LORA_LINE_BYTES;
            offered_ = false;
        }
        if (!c.ar_valid || !c.ar_ready) return;
        address_ = static_cast<uint64_t>(c.ar_line) * LORA_LINE_BYTES;
        left_ = c.ar_beats + 1u;
        due_ = now + (timing_.random() ? 2 + timing_.below(8) : timing_.config.latency);
    }

  private:
    const CardMemory &memory_;
    Timing &timing_;
    uint64_t address_ = 0, due_ = 0;
    uint32_t left_ = 0;
    bool offered_ = false, error_ = false;
    uint8_t line_[LORA_LINE_BYTES] = {};
};

#endif
