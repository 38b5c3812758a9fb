// The control of an emulated board in hardware: what firmware.h declares, by a simulated control.
#include "hal_control.hpp"

extern "C" {
#include "firmware.h"
}

#include <atomic>
#include <map>
#include <mutex>

struct fw {
    uint32_t unused;
};

namespace {

constexpr uint32_t SLICE_CYCLES = 500;  // between two looks of the other boards
constexpr uint32_t QUIET_CYCLES = 60;   // in which only units work: they have to be run
constexpr uint64_t MAX_OWED = 1u << 20; // cycles in which nothing but time passes

std::atomic<uint64_t> cycles_of_all{0}; // of controls that are no more

class BoardControl {
  public:
    BoardControl() : control_(1, 1, false), seen_(hal_cycles()) {}
    ~BoardControl() { cycles_of_all += cycles(); }

    uint64_t cycles() { return control_.card().cycle(); }

    uint32_t poll() {
        RunUnits &units = control_.card().units();
        control_.take_registers();
        if (control_.testing()) control_.test_links();
        uint64_t owed = waits_ ? hal_cycles() - seen_ : 0, quiet = 0, ran = 0;
        seen_ = hal_cycles();
        if (owed > MAX_OWED) owed = MAX_OWED;
        for (waits_ = false; ran < SLICE_CYCLES || ran < owed; ran++) {
            bool ran_before = control_.runs();
            control_.cycle();
            quiet = units.moved() || !units.works() ? 0 : quiet + 1;
            if (ran_before && !control_.runs()) return LORA_FW_DONE;
            if (quiet > QUIET_CYCLES && ran >= owed) break;
        }
        waits_ = control_.runs() && (quiet > QUIET_CYCLES || control_.testing());
        return !control_.runs() ? LORA_FW_IDLE : waits_ ? LORA_FW_WAITING : LORA_FW_RUNNING;
    }

  private:
    hal::Control control_;
    bool waits_ = false;
    uint64_t seen_;
};

std::mutex lock;
std::map<const fw *, std::unique_ptr<BoardControl>> controls;

BoardControl &control_of(const fw *board) {
    std::lock_guard<std::mutex> held(lock);
    auto &control = controls[board];
    if (!control) control = std::make_unique<BoardControl>();
    return *control;
}

} // namespace

uint32_t fw_bytes(void) { return sizeof(fw); }

void fw_reset(fw *board) {
    std::lock_guard<std::mutex> held(lock);
    controls.erase(board);
}

uint32_t fw_poll(fw *board) { return control_of(board).poll(); }

// Of all controls of this process.
extern "C" uint64_t simulated_cycles(void) {
    std::lock_guard<std::mutex> held(lock);
    uint64_t sum = cycles_of_all;
    for (const auto &[board, control] : controls) sum += control->cycles();
    return sum;
}
