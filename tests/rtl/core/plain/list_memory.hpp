#ifndef LORA_TEST_LIST_MEMORY_HPP
#define LORA_TEST_LIST_MEMORY_HPP

#include "run_units.hpp"

// The bank that the sequencer reads lists from.
class ListMemory {
  public:
    explicit ListMemory(Memory memory) : memory_(memory) {}

    void quiet(VControl &c) { c.ar_ready = c.r_valid = c.r_last = c.r_error = 0; }

    void drive(VControl &c, uint64_t latency, bool waits) {
        latency_ = latency;
        c.ar_ready = !waits;
        if (wait_) wait_--;
        c.r_valid = left_ && !wait_ && (offered_ || !waits);
        offered_ = c.r_valid;
        if (c.r_valid)
            for (uint32_t i = 0; i < 16; i++) c.r_data[i] = memory_(address_ + 4 * i, 0, 0);
        c.r_last = left_ == 1;
        c.r_error = c.r_valid && address_ == bad_line_;
    }

    void forget() { left_ = 0, wait_ = 0, offered_ = false; }
    void set_bad_line(uint64_t line) { bad_line_ = line; }

    void see(VControl &c) {
        if (c.r_valid && c.r_ready) {
            left_--;
            address_ += 64;
            offered_ = false;
        }
        if (c.ar_valid && c.ar_ready && !c.rst) {
            address_ = uint64_t(c.ar_line) * 64;
            left_ = c.ar_beats + 1;
            wait_ = latency_;
        }
    }

  private:
    Memory memory_;
    uint64_t address_ = 0, wait_ = 0, latency_ = 0, bad_line_ = 1;
    uint32_t left_ = 0;
    bool offered_ = false;
};

#endif
