/* overlays/rtl/adapter/adapter.sv, simulated by itself: h = FP16(A*x). */
#include "VAdapter.h"
#include "VAdapter___024root.h"
#include "adapter_call.hpp"
#include "disturbed_run.hpp"
#include "simulated_unit.hpp"
#include "simulation.hpp"

namespace {

class AdapterUnit : public SimulatedUnit {
  public:
    explicit AdapterUnit(uint32_t seed) : unit_(seed) {}

    bool can(const lora_unit_call *call) const override { return adapter_unit_can(call); }

    int run(lora_unit_call *call, MemoryTiming timing, uint64_t *cycles) override {
        give(call);
        return result(call, unit_.run(call, timing, cycles,
                                      [=](VAdapter &unit) { give_row_adapter(call, unit); }));
    }

    int disturb(lora_unit_call *call, Disturbance &how, lora_rtl_disturbed &counts,
                uint64_t *cycles) override {
        DisturbedUnit<VAdapter> unit{
            unit_, [this](const lora_unit_call *one) { give(one); }, give_row_adapter<VAdapter>,
            [](const VAdapter &one) -> uint32_t { return one.rootp->adapter__DOT__state; }};
        return result(call, run_disturbed(unit, other_, call, how, counts, cycles));
    }

  private:
    int result(lora_unit_call *call, int status) {
        take_counts(unit_, call);
        return status == LORA_OK ? adapter_status(unit_->verdict) : status;
    }

    void give(const lora_unit_call *call) {
        give_down(*unit_.operator->(), call);
        unit_->stripe_log = 5;
        unit_->sums_valid = 0;
    }

    KeptCall other_;
    Simulation<VAdapter> unit_;
};

} // namespace

std::unique_ptr<SimulatedUnit> make_adapter_unit(uint32_t seed) {
    return std::make_unique<AdapterUnit>(seed);
}
