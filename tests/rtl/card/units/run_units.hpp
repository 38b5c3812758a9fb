// A card's units that are not in hardware, and the memory of those that are: in the place of
// ../../core/run_units.hpp.
#ifndef LORA_TEST_RUN_UNITS_HPP
#define LORA_TEST_RUN_UNITS_HPP

#include "VControl.h"
#include "line_memory.hpp"
#include "units.hpp"

#include <cstdint>
#include <cstring>

// A word of board memory: reads (no `bytes`) return it.
using Memory = uint32_t (*)(uint64_t address, uint32_t bytes, uint32_t data);

class RunUnits {
  public:
    enum : uint32_t { COUNT = 5, GROUP_BITS = 3, MPU = 1, ROUTER = 3 };
    static constexpr uint32_t PLAYED[] = {MPU, ROUTER};
    explicit RunUnits(Units &works) : works_(works) {}

    void quiet(VControl &c) {
        lines_.quiet(c);
        c.result_valid = 0;
        c.unit_idle = 0x1f;
        c.segments = 0;
        c.result_sum = 0;
        c.result_port = c.result_status = c.result_state = 0;
        for (uint32_t i = 0; i < 3; i++) c.result_frames[i] = 0;
        for (uint32_t i = 0; i < Units::PROGRESS_WORDS; i++) c.progress[i] = 0;
        for (uint32_t i = 0; i < COUNT; i++)
            c.result_nonfinite_count[i] = c.result_nonfinite_row[i] = 0;
    }

    // Before a clock edge: results of what is over.
    void drive(VControl &c, uint64_t) {
        uint32_t valid = 0, idle = 0x1f, state = 0;
        uint64_t status = 0, port = 0;
        for (uint32_t u : PLAYED) {
            Unit &unit = units_[u];
            if (unit.runs && !unit.over) unit.over = works_.over(u, unit.result);
            valid |= uint32_t(unit.runs && unit.over) << u;
            idle &= ~(uint32_t(unit.runs) << u);
            status |= uint64_t(unit.result.status & 0xff) << 8 * u;
            port |= uint64_t(unit.result.port & 0xff) << 8 * u;
            state |= unit.result.state << 2 * u;
            c.result_nonfinite_count[u] = unit.result.nonfinite_count;
            c.result_nonfinite_row[u] = unit.result.nonfinite_row;
        }
        c.result_valid = static_cast<uint8_t>(valid);
        c.unit_idle = static_cast<uint8_t>(idle);
        c.result_status = status;
        c.result_port = port;
        c.result_state = static_cast<uint16_t>(state);
        drive_router(c);
        lines_.drive(c);
        c.eval();
    }

    // What this edge takes and starts.
    void see(VControl &c, uint64_t) {
        if (c.rst) return; // registers begin with any bits
        for (uint32_t u : PLAYED) {
            Unit &unit = units_[u];
            if (c.result_valid >> u & c.result_ready >> u & 1) {
                unit.runs = false;
                moved_ = true;
            }
            if (c.unit_announce >> u & 1) std::memcpy(unit.command, &c.unit_line[0], 64);
            if (c.unit_start >> u & 1) {
                unit.runs = moved_ = true;
                unit.over = false;
                unit.result = Result();
                works_.start(u, unit.command, c.unit_list, c.unit_state);
            }
            if (c.unit_abort >> u & 1) stop(u);
        }
        lines_.see(c);
        moved_ |= lines_.busy();
    }

    void reset() {
        for (uint32_t u : PLAYED) stop(u);
        lines_.forget();
    }

    void begin(uint64_t) {}

    // A command was started, a result taken or memory used since the last call.
    bool moved() {
        bool found = moved_;
        moved_ = false;
        return found;
    }

    bool stopped_router() { return false; } // the card tells its own mailbox

    // Some unit's work is not over, and nothing else goes on.
    bool works() const {
        for (const Unit &unit : units_)
            if (unit.runs && !unit.over) return true;
        return false;
    }

  private:
    struct Unit {
        bool runs = false, over = false;
        uint32_t command[16] = {};
        Result result;
    };

    void drive_router(VControl &c) {
        const Unit &router = units_[ROUTER];
        c.result_sum = router.result.value;
        for (uint32_t i = 0; i < 3; i++) c.result_frames[i] = router.result.frames[i];
        uint32_t groups[Units::SEGMENTS] = {}, packed = 0, words[Units::PROGRESS_WORDS];
        if (router.runs) works_.segments(groups);
        for (uint32_t i = 0; i < Units::SEGMENTS; i++) packed |= groups[i] << GROUP_BITS * i;
        c.segments = packed;
        if (!router.runs || !works_.progress(words)) return;
        for (uint32_t i = 0; i < Units::PROGRESS_WORDS; i++) c.progress[i] = words[i];
    }

    void stop(uint32_t which) {
        Unit &unit = units_[which];
        if (!unit.runs) return;
        if (!unit.over) works_.abort(which);
        unit.runs = false;
    }

    Units &works_;
    Unit units_[COUNT];
    LineMemory lines_;
    bool moved_ = false;
};

#endif
