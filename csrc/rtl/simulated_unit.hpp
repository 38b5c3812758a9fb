/* A unit of overlays/rtl that runs commands in simulation. */
#ifndef LORA_RTL_SIMULATED_UNIT_HPP
#define LORA_RTL_SIMULATED_UNIT_HPP

#include <memory>
#include <string>

#include "ports.hpp"
#include "random.hpp"
#include "rtl.hpp"

/* What tests do to commands: rtl.hpp. */
struct Disturbance {
    Random random{0};
    uint32_t attempts = 0;
    std::string error;
};

class SimulatedUnit {
  public:
    virtual ~SimulatedUnit() = default;
    /* Whether this call is one that the unit can do. */
    virtual bool can(const lora_unit_call *call) const = 0;
    /* Runs it: an enum lora_status. `cycles` rises by what it took. */
    virtual int run(lora_unit_call *call, MemoryTiming timing, uint64_t *cycles) = 0;
    /* The same, behind commands that are begun and ended. */
    virtual int disturb(lora_unit_call *call, Disturbance &how, lora_rtl_disturbed &counts,
                        uint64_t *cycles) = 0;
};

/* Registers and memories begin with random bits made from `seed`. */
std::unique_ptr<SimulatedUnit> make_array_fp16(uint32_t seed);
std::unique_ptr<SimulatedUnit> make_array_int8(uint32_t seed);
std::unique_ptr<SimulatedUnit> make_vector_unit(uint32_t seed);
std::unique_ptr<SimulatedUnit> make_attention_unit(uint32_t seed);
std::unique_ptr<SimulatedUnit> make_adapter_unit(uint32_t seed);

#endif
