/* overlays/rtl/mpu/mpu_int8.sv, simulated. */
#include "VMpuInt8.h"
#include "VMpuInt8___024root.h"
#include "adapted_array.hpp"
#include "disturbed_run.hpp"
#include "matmul_call.hpp"
#include "simulated_unit.hpp"
#include "simulation.hpp"

namespace {

class ArrayInt8 : public SimulatedUnit {
  public:
    explicit ArrayInt8(uint32_t seed) : adapted_(seed), unit_(seed) {}

    bool can(const lora_unit_call *call) const override {
        const lora_matrix *c = matrix_of(call);
        bool weights = c->weight_type == LORA_WEIGHT_INT8 ||
                       (weight_kind(c) == LORA_WEIGHT_W4A8 && whole_groups(c));
        uint64_t behind = c->flags & LORA_FLAG_ROW_SCALES ? 2 * LORA_LINE_BYTES : 0;
        return weights && c->bias_bank <= LORA_BANK_ONCHIP && array_can(call, c->k + behind);
    }

    int run(lora_unit_call *call, MemoryTiming timing, uint64_t *cycles) override {
        if (names_adapter(call)) return adapted_.run(call, timing, cycles, give);
        give(*unit_.operator->(), call);
        int status = unit_.run(call, timing, cycles);
        take_counts(unit_, call);
        return status;
    }

    int disturb(lora_unit_call *call, Disturbance &how, lora_rtl_disturbed &counts,
                uint64_t *cycles) override {
        if (names_adapter(call)) return adapted_.disturb(call, how, counts, cycles, give);
        DisturbedUnit<VMpuInt8> unit{
            unit_, [this](const lora_unit_call *one) { give(*unit_.operator->(), one); },
            [](const lora_unit_call *, VMpuInt8 &) {},
            [](const VMpuInt8 &one) -> uint32_t { return one.rootp->mpu_int8__DOT__state; }};
        int status = run_disturbed(unit, other_, call, how, counts, cycles);
        take_counts(unit_, call);
        return status;
    }

  private:
    static void give(VMpuInt8 &unit, const lora_unit_call *call) {
        const lora_matrix *c = matrix_of(call);
        give_matmul(unit, call);
        unit.has_bias = !(c->flags & LORA_FLAG_NO_BIAS);
        unit.row_scales = (c->flags & LORA_FLAG_ROW_SCALES) != 0;
        unit.four_bit = weight_kind(c) == LORA_WEIGHT_W4A8;
        unit.group_log = unit.four_bit ? (group_log(c) - 5) & 3 : 0;
        unit.adapted = 0;
    }

    KeptCall other_;
    AdaptedRuns<VMpuInt8> adapted_;
    Simulation<VMpuInt8> unit_;
};

} // namespace

std::unique_ptr<SimulatedUnit> make_array_int8(uint32_t seed) {
    return std::make_unique<ArrayInt8>(seed);
}
