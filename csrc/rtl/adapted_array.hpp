/* A matmul array and the adapter unit beside it, clocked together. Each has a memory port of its
 * own. To Simulation and DisturbedRun they are one unit. */
#ifndef LORA_RTL_ADAPTED_ARRAY_HPP
#define LORA_RTL_ADAPTED_ARRAY_HPP

#include "adapter_call.hpp"
#include "disturbed_run.hpp"
#include "simulated_unit.hpp"
#include "simulation.hpp"

#ifdef LORA_RTL_ADAPTER
#include "VAdapter.h"
#include "VAdapter___024root.h"

/* An input of both. */
struct SharedInput {
    CData &of_array, &of_adapter;
    SharedInput &operator=(CData value) {
        of_array = of_adapter = value;
        return *this;
    }
};

template <class Array> class AdaptedArray {
  public:
    explicit AdaptedArray(VerilatedContext *context) : array(context), adapter(context) {}

    Array array;
    VAdapter adapter;
    CData announce_valid = 0, command_valid = 0;
    CData command_ready = 0, idle = 0, done = 0, read_valid = 0, write_valid = 0;
    SharedInput clk{array.clk, adapter.clk}, rst{array.rst, adapter.rst},
        abort_valid{array.abort_valid, adapter.abort_valid},
        read_ready{array.read_ready, adapter.read_ready},
        write_ready{array.write_ready, adapter.write_ready},
        line_valid{array.line_valid, adapter.line_valid};
    IData &nonfinite_count = array.nonfinite_count, &nonfinite_row = array.nonfinite_row;

    /* A command is told to both in one cycle. */
    void eval() {
        array.announce_valid = adapter.announce_valid = announce_valid && idle;
        array.command_valid = adapter.command_valid = command_valid && command_ready;
        array.eval();
        adapter.eval();
        adapter.stripe_log = array.stripe_log;
        adapter.sums_valid = array.stripe_valid;
        adapter.sums = array.stripe_values;
        array.values_free = adapter.values_free;
        array.values_valid = adapter.values_valid;
        array.values_single = adapter.values_single;
        array.values_half = adapter.values_half;
        command_ready = array.command_ready && adapter.command_ready;
        idle = array.idle && adapter.idle;
        done = array.done;
        read_valid = array.read_valid || adapter.read_valid;
        write_valid = array.write_valid || adapter.write_valid;
    }
};

template <class Array> class Ports<AdaptedArray<Array>> {
  public:
    Ports(AdaptedArray<Array> &unit, BoardMemory &memory, MemoryTiming timing)
        : array_(unit.array, memory, timing), adapter_(unit.adapter, memory, timing) {}

    void drive(uint64_t cycle) {
        array_.drive(cycle);
        adapter_.drive(cycle);
    }

  private:
    Ports<Array> array_;
    Ports<VAdapter> adapter_;
};

template <class Array> class CheckedPorts<AdaptedArray<Array>> {
  public:
    CheckedPorts(AdaptedArray<Array> &unit, DisturbedMemory &memory, Behavior behavior,
                 Random &random)
        : array_(unit.array, memory, behavior, random),
          adapter_(unit.adapter, memory, behavior, random) {}

    void drive() {
        array_.drive();
        adapter_.drive();
    }
    bool read_left() const { return array_.read_left() || adapter_.read_left(); }
    bool write_left() const { return array_.write_left() || adapter_.write_left(); }
    size_t under_way() const { return array_.under_way() + adapter_.under_way(); }
    void stop(uint32_t others) {
        array_.stop(others);
        adapter_.stop(others);
    }
    void reset() {
        array_.reset();
        adapter_.reset();
    }
    const std::string &error() const {
        return array_.error().empty() ? adapter_.error() : array_.error();
    }

  private:
    CheckedPorts<Array> array_;
    CheckedPorts<VAdapter> adapter_;
};

/* Runs matmuls whose rows name adapters. */
template <class Array> class AdaptedRuns {
  public:
    explicit AdaptedRuns(uint32_t seed) : unit_(seed) {}

    template <class Give>
    int run(lora_unit_call *call, MemoryTiming timing, uint64_t *cycles, Give give_array) {
        give(call, give_array);
        return result(call, unit_.run(call, timing, cycles, [=](AdaptedArray<Array> &unit) {
            give_row_adapter(call, unit.adapter);
        }));
    }

    template <class Give>
    int disturb(lora_unit_call *call, Disturbance &how, lora_rtl_disturbed &counts,
                uint64_t *cycles, Give give_array) {
        using Unit = AdaptedArray<Array>;
        DisturbedUnit<Unit> unit{
            unit_, [=](const lora_unit_call *one) { give(one, give_array); },
            [](const lora_unit_call *one, Unit &its) { give_row_adapter(one, its.adapter); },
            [](const Unit &one) -> uint32_t { return one.adapter.rootp->adapter__DOT__state; }};
        return result(call, run_disturbed(unit, other_, call, how, counts, cycles));
    }

  private:
    template <class Give> void give(const lora_unit_call *call, Give give_array) {
        give_array(unit_->array, call);
        unit_->array.adapted = 1;
        give_up(unit_->adapter, call);
    }

    int result(lora_unit_call *call, int status) {
        take_counts(unit_, call);
        return status == LORA_OK ? adapter_status(unit_->adapter.verdict) : status;
    }

    KeptCall other_;
    Simulation<AdaptedArray<Array>> unit_;
};

#else

/* A library without the unit: its arrays refuse such commands. */
template <class Array> class AdaptedRuns {
  public:
    explicit AdaptedRuns(uint32_t) {}
    template <class... Given> int run(Given...) { return LORA_ERR_OPCODE; }
    template <class... Given>
    int disturb(lora_unit_call *, Disturbance &, lora_rtl_disturbed &, Given...) {
        return LORA_ERR_OPCODE;
    }
};

#endif
#endif
