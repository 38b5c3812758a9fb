// Units as the sequencer sees them, for card.hpp.
#ifndef LORA_TEST_RUN_UNITS_HPP
#define LORA_TEST_RUN_UNITS_HPP

#include "VControl.h"
#include "units.hpp"

#include <cstdint>
#include <cstring>
#include <deque>

// A word of board memory: reads (no `bytes`) return it.
using Memory = uint32_t (*)(uint64_t address, uint32_t bytes, uint32_t data);

// Units take the cycles that were set, or as many as the caller says, for what the sequencer
// starts, and longer where their work is not over then.
class RunUnits {
  public:
    enum : uint32_t { COUNT = 5, GROUP_BITS = 3 };
    explicit RunUnits(Units &works) : works_(works) {}

    void set_duration(uint32_t unit, uint64_t cycles) { durations_[unit % COUNT] = cycles; }

    void quiet(VControl &c) {
        c.result_valid = 0;
        c.unit_idle = 0x1f;
        c.hold_units = 0;
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
        uint32_t valid = 0, idle = 1, state = 0;
        uint64_t status = 0, port = 0;
        for (uint32_t u = 1; u < COUNT; u++) {
            Unit &unit = units_[u];
            look(unit, u);
            valid |= uint32_t(unit.runs && unit.over) << u;
            idle |= uint32_t(!unit.runs) << u;
            status |= uint64_t(unit.result.status & 0xff) << 8 * u;
            port |= uint64_t(unit.result.port & 0xff) << 8 * u;
            state |= unit.result.state << 2 * u;
            c.result_nonfinite_count[u] = unit.result.nonfinite_count;
            c.result_nonfinite_row[u] = unit.result.nonfinite_row;
        }
        c.result_valid = valid;
        c.unit_idle = idle;
        c.result_status = status;
        c.result_port = port;
        c.result_state = state;
        drive_router(c);
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
                if (unit.result.state == Result::DONE && !unit.result.status)
                    works_.trace(index_of(c, u), rows_of(c, u), true);
                ended_ = cycle;
                moved_ = true;
                if (u == Units::ROUTER && unit.result.state == Result::FAILED)
                    stopped_router_ = true;
            }
            if (c.unit_announce >> u & 1) memcpy(unit.command, &c.unit_line[0], 64);
            if (c.unit_start >> u & 1) begin_command(c, u, cycle);
            if (c.unit_abort) stop(unit, u);
        }
        if (!ran && !any() && commands_) pending_++;
    }

    void reset() {
        for (uint32_t u = 1; u < COUNT; u++) stop(units_[u], u);
    }

    // A doorbell.
    void begin(uint64_t cycle) {
        doorbell_ = cycle;
        commands_ = first_ = idle_ = pending_ = ended_ = 0;
    }

    // A command was started or a result taken since the last call.
    bool moved() {
        bool found = moved_;
        moved_ = false;
        return found;
    }

    // The Router was stopped, or has failed, since the last call.
    bool stopped_router() {
        bool found = stopped_router_;
        stopped_router_ = false;
        return found;
    }

    // Some unit's work is not over.
    bool works() const {
        for (const Unit &unit : units_)
            if (unit.runs && !unit.over) return true;
        return false;
    }

    void measured(uint64_t found[4]) const {
        found[0] = commands_;
        found[1] = first_ - doorbell_;
        found[2] = idle_;
        found[3] = ended_;
    }

  private:
    struct Unit {
        bool runs = false, over = false;
        uint64_t left = 0;
        uint32_t command[16] = {};
        Result result;
    };

    // Of the command that a unit runs.
    static uint32_t index_of(const VControl &c, uint32_t unit) {
        uint32_t index = 0;
        for (uint32_t bit = 0, at = 14 * unit; bit < 14; bit++, at++)
            index |= (c.run_index[at / 32] >> at % 32 & 1) << bit;
        return index;
    }
    static uint32_t rows_of(const VControl &c, uint32_t unit) {
        return uint32_t(c.run_rows >> 7 * unit & 0x7f);
    }

    void look(Unit &unit, uint32_t which) {
        if (unit.runs && unit.left) unit.left--;
        if (unit.runs && !unit.left && !unit.over) unit.over = works_.over(which, unit.result);
    }

    void drive_router(VControl &c) {
        const Unit &router = units_[Units::ROUTER];
        c.result_sum = router.result.value;
        for (uint32_t i = 0; i < 3; i++) c.result_frames[i] = router.result.frames[i];
        uint32_t groups[Units::SEGMENTS] = {}, packed = 0;
        if (router.runs) works_.segments(groups);
        for (uint32_t i = 0; i < Units::SEGMENTS; i++) packed |= groups[i] << GROUP_BITS * i;
        c.segments = packed;
    }

    void stop(Unit &unit, uint32_t which) {
        if (!unit.runs) return;
        if (!unit.over) works_.abort(which);
        unit.runs = false;
        if (which == Units::ROUTER) stopped_router_ = true;
    }

    // One whose time is over does not run any more.
    bool any() const {
        for (const Unit &unit : units_)
            if (unit.runs && unit.left) return true;
        return false;
    }

    void begin_command(const VControl &c, uint32_t which, uint64_t cycle) {
        Unit &unit = units_[which];
        unit.runs = moved_ = true;
        unit.over = false;
        unit.left = durations_[which] + extra_;
        unit.result = Result();
        works_.trace(index_of(c, which), rows_of(c, which), false);
        works_.start(which, unit.command, c.unit_list, c.unit_state);
        if (!commands_) first_ = cycle;
        commands_++;
        idle_ += pending_;
        pending_ = 0;
    }

    Units &works_;
    Unit units_[COUNT];
    bool moved_ = false, stopped_router_ = false;
    uint64_t durations_[COUNT] = {}, extra_ = 0;
    uint64_t doorbell_ = 0, commands_ = 0, first_ = 0, idle_ = 0, pending_ = 0, ended_ = 0;
};

#endif
