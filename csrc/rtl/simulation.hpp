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
        power_up(seed, [](Unit &) { return 0u; });
    }
    /* Verilator takes a unit's public names out of the context that its thread used last. */
    ~Simulation() {
        Verilated::threadContextp(&context_);
        unit_.reset();
    }
    Simulation(const Simulation &) = delete;
    Simulation &operator=(const Simulation &) = delete;

    /* A new unit, registers and memories of any bits; what `look` saw of it before its reset. */
    template <class Look> uint32_t power_up(uint32_t seed, Look look) {
        Verilated::threadContextp(&context_);
        unit_.reset();
        context_.randReset(2); /* random bits, not zeros */
        context_.randSeed(static_cast<int>(seed & 0x7fffffff));
        unit_ = std::make_unique<Unit>(&context_);
        uint32_t seen = look(*unit_);
        unit_->clk = 0;
        unit_->rst = 1;
        unit_->abort_valid = 0;
        unit_->command_valid = 0;
        no_announce(*unit_, 0);
        no_adapter(*unit_, 0);
        unit_->read_ready = 0;
        unit_->write_ready = 0;
        unit_->line_valid = 0;
        unit_->eval(); /* the clock is low */
        edge();
        unit_->rst = 0;
        return seen;
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

    void edge() {
        unit_->clk = 1;
        unit_->eval();
        unit_->clk = 0;
        fall(*unit_, 0);
    }

  private:
    /* Nothing in a unit depends on a low clock: all that is left to do is to tell the model, which
     * finds edges by what it saw last. Where its name for that is another one, or there are two
     * models, they look for themselves. */
    template <class Known>
    static auto fall(Known &unit, int) -> decltype(unit.rootp->__Vtrigrprev__TOP__clk, void()) {
        unit.rootp->__Vtrigrprev__TOP__clk = 0;
    }
    template <class Other> static void fall(Other &unit, long) { unit.eval(); }

    static constexpr uint64_t QUIET_CYCLES = 1 << 20; /* without a word to memory: a hang */

    /* Only the arrays are told of a command before its start. */
    template <class Told>
    static auto no_announce(Told &unit, int) -> decltype(unit.announce_valid, void()) {
        unit.announce_valid = 0;
    }
    template <class Told> static void no_announce(Told &, long) {}

    /* No adapter unit beside an array: what it would say is constant. */
    template <class Array>
    static auto no_adapter(Array &unit, int) -> decltype(unit.adapted, void()) {
        unit.values_free = 1;
        unit.values_valid = 0;
    }
    template <class Other> static void no_adapter(Other &, long) {}

    VerilatedContext context_;
    std::unique_ptr<Unit> unit_;
};

#endif
