/* The clock of one verilated unit, from reset to the end of each command. The unit's own names are
 * used: clk, rst, command_valid, done and the ports'. */
#ifndef LORA_RTL_SIMULATION_HPP
#define LORA_RTL_SIMULATION_HPP

#include <memory>

#include "ports.hpp"
#include "verilated.h"

template <class Unit> class Simulation {
  public:
    explicit Simulation(uint32_t seed) {
        context_.randReset(2); /* random bits, not zeros */
        context_.randSeed(static_cast<int>(seed & 0x7fffffff));
        unit_ = std::make_unique<Unit>(&context_);
        unit_->clk = 0;
        unit_->rst = 1;
        unit_->command_valid = 0;
        unit_->read_ready = 0;
        unit_->write_ready = 0;
        unit_->line_valid = 0;
        for (uint32_t i = 0; i < RESET_CYCLES; i++) edge();
        unit_->rst = 0;
    }

    Unit *operator->() { return unit_.get(); }

    /* Runs the command whose fields are set: an enum lora_status. `before` is called with the unit
     * ahead of each clock edge, for inputs that follow its outputs. */
    template <class Before>
    int run(lora_unit_call *call, MemoryTiming timing, uint64_t *cycles, Before before) {
        BoardMemory memory(call);
        Ports<Unit> ports(*unit_, memory, timing);
        unit_->command_valid = 1;
        uint64_t cycle = 0, spoke = 0;
        do {
            bool taken = unit_->command_valid && unit_->command_ready;
            if (unit_->read_valid || unit_->write_valid) spoke = cycle;
            ports.drive(cycle);
            before(*unit_);
            edge();
            if (taken) unit_->command_valid = 0;
            if (cycle++ - spoke > QUIET_CYCLES) return LORA_ERR_WATCHDOG;
        } while (!unit_->done);
        *cycles += cycle;
        return memory.failed() ? LORA_ERR_ADDRESS : LORA_OK;
    }

    int run(lora_unit_call *call, MemoryTiming timing, uint64_t *cycles) {
        return run(call, timing, cycles, [](Unit &) {});
    }

  private:
    static constexpr uint32_t RESET_CYCLES = 32;
    static constexpr uint64_t QUIET_CYCLES = 1 << 20; /* without a word to memory: a hang */

    void edge() {
        unit_->clk = 1;
        unit_->eval();
        unit_->clk = 0;
        unit_->eval();
    }

    VerilatedContext context_;
    std::unique_ptr<Unit> unit_;
};

#endif
