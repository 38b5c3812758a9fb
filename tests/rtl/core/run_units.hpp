// Units and memory as the sequencer sees them, for card.cpp.
#ifndef LORA_TEST_RUN_UNITS_HPP
#define LORA_TEST_RUN_UNITS_HPP

#include "VControl.h"

#include <cstdint>
#include <cstring>
#include <deque>

// A word of board memory: reads (no `bytes`) return it.
using Memory = uint32_t (*)(uint64_t address, uint32_t bytes, uint32_t data);
// Returns how the command ends: 0, or what it fails with; HANGS: not at all.
using Start = uint32_t (*)(uint32_t unit, const uint32_t *command);

// Units take the cycles that were set, or as many as the caller says, for what the sequencer
// starts.
class RunUnits {
  public:
    enum : uint32_t { COUNT = 5, ROUTER = 3, DONE = 2, FAILED = 3, HANGS = 0xffffffff };
    explicit RunUnits(Start start) : start_(start) {}

    void set_duration(uint32_t unit, uint64_t cycles) { durations_[unit % COUNT] = cycles; }

    void quiet(VControl &c) {
        c.result_valid = 0;
        c.unit_idle = 0x1f;
        c.segments = 0;
        c.result_sum = 0;
        for (uint32_t i = 0; i < 3; i++) c.result_frames[i] = 0;
        for (uint32_t i = 0; i < COUNT; i++)
            c.result_nonfinite_count[i] = c.result_nonfinite_row[i] = 0;
        c.result_port = 0;
        c.result_status = 0;
        c.result_state = 0;
    }

    // Before a clock edge: results of what is over.
    void drive(VControl &c, uint64_t extra) {
        extra_ = extra;
        uint32_t valid = 0, idle = 1;
        uint64_t status = 0;
        uint32_t state = 0;
        for (uint32_t u = 1; u < COUNT; u++) {
            Unit &unit = units_[u];
            if (unit.runs && unit.left) unit.left--;
            bool over = unit.runs && !unit.left && unit.end != HANGS;
            valid |= uint32_t(over) << u;
            idle |= uint32_t(!unit.runs) << u;
            status |= uint64_t(over ? unit.end & 0xff : 0) << 8 * u;
            state |= uint32_t(unit.end ? FAILED : DONE) << 2 * u;
        }
        c.result_valid = valid;
        c.unit_idle = idle;
        c.result_status = status;
        c.result_state = state;
        c.eval();
    }

    // What this edge takes and starts.
    void see(VControl &c, uint64_t cycle) {
        if (c.rst) return; // registers begin with any bits
        bool ran = any();
        for (uint32_t u = 1; u < COUNT; u++) {
            Unit &unit = units_[u];
            if (c.result_valid >> u & c.result_ready >> u & 1) {
                unit.runs = false;
                ended_ = cycle;
            }
            if (c.unit_announce >> u & 1) memcpy(unit.command, &c.unit_line[0], 64);
            if (c.unit_start >> u & 1) begin_command(unit, u, cycle);
            if (c.unit_abort) unit.runs = false;
        }
        if (!ran && !any() && commands_) pending_++;
    }

    // A doorbell.
    void begin(uint64_t cycle) {
        doorbell_ = cycle;
        commands_ = first_ = idle_ = pending_ = ended_ = 0;
    }

    void measured(uint64_t found[4]) const {
        found[0] = commands_;
        found[1] = first_ - doorbell_;
        found[2] = idle_;
        found[3] = ended_;
    }

  private:
    struct Unit {
        bool runs = false;
        uint64_t left = 0;
        uint32_t end = 0, command[16] = {};
    };

    // One whose time is over does not run any more.
    bool any() const {
        for (const Unit &unit : units_)
            if (unit.runs && unit.left) return true;
        return false;
    }

    void begin_command(Unit &unit, uint32_t which, uint64_t cycle) {
        unit.runs = true;
        unit.left = durations_[which] + extra_;
        unit.end = start_(which, unit.command);
        if (!commands_) first_ = cycle;
        commands_++;
        idle_ += pending_;
        pending_ = 0;
    }

    Start start_;
    Unit units_[COUNT];
    uint64_t durations_[COUNT] = {}, extra_ = 0;
    uint64_t doorbell_ = 0, commands_ = 0, first_ = 0, idle_ = 0, pending_ = 0, ended_ = 0;
};

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
        c.eval();
    }

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
    uint64_t address_ = 0, wait_ = 0, latency_ = 0;
    uint32_t left_ = 0;
    bool offered_ = false;
};

#endif
