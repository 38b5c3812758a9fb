/* overlays/rtl/mpu/mpu_fp16.sv, simulated. */
#include "VMpuFp16.h"
#include "VMpuFp16___024root.h"
#include "adapted_array.hpp"
#include "disturbed_run.hpp"
#include "matmul_call.hpp"
#include "simulated_unit.hpp"
#include "simulation.hpp"

namespace {

class ArrayFp16 : public SimulatedUnit {
  public:
    explicit ArrayFp16(uint32_t seed) : adapted_(seed), unit_(seed) {}

    bool can(const lora_unit_call *call) const override {
        const lora_matrix *c = matrix_of(call);
        bool weights = c->weight_type == LORA_WEIGHT_FP16 ||
                       (weight_kind(c) == LORA_WEIGHT_W4A16 && whole_groups(c));
        bool scales = c->flags & LORA_FLAG_ROW_SCALES; /* INT8's alone: the kernels refuse it */
        return weights && !scales && array_can(call, 2ull * c->k);
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
        DisturbedUnit<VMpuFp16> unit{
            unit_, [this](const lora_unit_call *one) { give(*unit_.operator->(), one); },
            [](const lora_unit_call *, VMpuFp16 &) {},
            [](const VMpuFp16 &one) -> uint32_t { return one.rootp->mpu_fp16__DOT__state; }};
        int status = run_disturbed(unit, other_, call, how, counts, cycles);
        take_counts(unit_, call);
        return status;
    }

  private:
    static void give(VMpuFp16 &unit, const lora_unit_call *call) {
        const lora_matrix *c = matrix_of(call);
        give_matmul(unit, call);
        unit.has_bias = c->bias_bank != LORA_NO_BANK;
        unit.four_bit = weight_kind(c) == LORA_WEIGHT_W4A16;
        unit.group_log = unit.four_bit ? (group_log(c) - 5) & 3 : 0;
        unit.adapted = 0;
    }

    KeptCall other_;
    AdaptedRuns<VMpuFp16> adapted_;
    Simulation<VMpuFp16> unit_;
};

} // namespace

std::unique_ptr<SimulatedUnit> make_array_fp16(uint32_t seed) {
    return std::make_unique<ArrayFp16>(seed);
}
