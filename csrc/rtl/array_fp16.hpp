/* overlays/rtl/mpu/mpu_fp16.sv, simulated. */
#ifndef LORA_RTL_ARRAY_FP16_HPP
#define LORA_RTL_ARRAY_FP16_HPP

#include <memory>

#include "VMpuFp16.h"
#include "ports.hpp"

class ArrayFp16 {
  public:
    explicit ArrayFp16(uint32_t seed);
    /* Whether this matmul is one that the unit can do. */
    static bool can(const lora_unit_call *call);
    /* Runs it: an enum lora_status. `cycles` rises by what it took. */
    int run(lora_unit_call *call, MemoryTiming timing, uint64_t *cycles);

  private:
    void edge();
    void give(const lora_unit_call *call);

    VerilatedContext context_;
    std::unique_ptr<VMpuFp16> unit_;
};

#endif
