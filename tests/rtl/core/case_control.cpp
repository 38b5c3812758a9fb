// What firmware.h and tests/c/fw_control.h declare, for the cases of tests/c/test_firmware_*.c: one
// simulated control at a time, by the board that the case scripts. From the environment:
//   LORA_TEST_SEED      of registers, of memory's and units' waits
//   LORA_TEST_RESTARTS  1: operations are cut off by a restart or a reset
//   LORA_TEST_SHIFT     bytes that lists lie behind a line: the firmware dispatches them
//   LORA_TEST_SHARE     a case runs that part of its random rounds, in thousandths
#include "hal_control.hpp"

extern "C" {
#include "fw_control.h"
}

struct fw {
    uint32_t unused;
};

namespace {

constexpr uint32_t SLICE_CYCLES = 500, IDLE_CYCLES = 400;

uint32_t setting(const char *name, uint32_t otherwise) {
    const char *value = getenv(name);
    return value ? uint32_t(strtoul(value, nullptr, 10)) : otherwise;
}

const uint32_t seed = setting("LORA_TEST_SEED", 1);
std::minstd_rand chance(seed);
std::unique_ptr<hal::Control> control;

// The control program has begun when it says so.
void make() {
    control = std::make_unique<hal::Control>(1 + chance() % 1000000, POLL_CYCLES, true);
    while (hal_register(LORA_REG_IDENTITY_ABI) != LORA_ABI_NUMBER) control->cycle();
}

// Until an operation ends, or so many cycles. What a unit's work has told the host comes at once.
bool run(uint64_t cycles) {
    bool ran = control->runs();
    control->take_registers();
    if (control->testing()) control->test_links();
    while (cycles--) {
        control->cycle();
        if (control->card().units().moved()) control->take_registers();
        if (ran && !control->runs()) return true;
        ran = control->runs();
    }
    return false;
}

} // namespace

uint32_t fw_bytes(void) { return sizeof(fw); }
void fw_reset(fw *) { control.reset(); }

uint32_t fw_poll(fw *) {
    if (!control) make();
    if (run(SLICE_CYCLES)) return hal_register(LORA_REG_FIRMWARE_STATE);
    return control->runs() ? LORA_FW_RUNNING : LORA_FW_IDLE;
}

uint64_t control_cycles(void) { return control ? control->card().cycle() : 0; }
void control_pass(uint64_t cycles) { run(cycles); }
void control_idle(void) { run(IDLE_CYCLES); }
uint32_t control_random(uint32_t end) { return uint32_t(chance()) % end; }
uint32_t control_shift(void) { return setting("LORA_TEST_SHIFT", 0); }
int control_interrupts(void) { return setting("LORA_TEST_RESTARTS", 0) != 0; }

uint32_t control_sequenced(void) {
    uint64_t found[4];
    control->card().units().measured(found);
    return uint32_t(found[0]);
}

void control_restart(void) {
    if (chance() % 2) control->card().reset();
    control->begin();
}

uint32_t control_rounds(uint32_t rounds) {
    uint32_t some = uint32_t(uint64_t{rounds} * setting("LORA_TEST_SHARE", 1000) / 1000);
    return some ? some : 1;
}
