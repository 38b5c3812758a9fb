/* The table of kernels: what a unit can do runs in simulation, the rest natively. */
#include <mutex>
#include <new>
#include <vector>

#include "adapter_call.hpp"
#include "matmul_call.hpp"
#include "rtl.hpp"
#include "simulated_unit.hpp"

namespace {

struct Units {
    std::mutex lock; /* boards run on several threads */
    const lora_kernels *native = nullptr;
    std::vector<std::unique_ptr<SimulatedUnit>> arrays, vectors, attentions, adapters;
    MemoryTiming timing;
    lora_rtl_counts counts{};
    Disturbance disturbance;
    lora_rtl_disturbed disturbed[LORA_RTL_UNITS] = {};
};

Units units;

using Kernel = int (*)(void *, lora_unit_call *);

int natively(Kernel lora_kernels::*kernel, uint64_t lora_rtl_counts::*count, lora_unit_call *call) {
    {
        std::lock_guard<std::mutex> held(units.lock);
        units.counts.*count += 1;
    }
    Kernel run = units.native->*kernel;
    return run ? run(units.native->context, call) : LORA_ERR_OPCODE;
}

SimulatedUnit *found(const std::vector<std::unique_ptr<SimulatedUnit>> &among,
                     const lora_unit_call *call) {
    for (const auto &unit : among)
        if (unit->can(call)) return unit.get();
    return nullptr;
}

/* Under the lock. */
int run(SimulatedUnit *unit, lora_rtl_unit which, lora_unit_call *call, uint64_t *cycles) {
    if (units.disturbance.attempts)
        return unit->disturb(call, units.disturbance, units.disturbed[which], cycles);
    return unit->run(call, units.timing, cycles);
}

/* `counts`: of an operation, simulated and native. */
void count_one(uint64_t (&counts)[2], bool native) {
    std::lock_guard<std::mutex> held(units.lock);
    counts[native]++;
}

int matrix(void *, lora_unit_call *call) {
    SimulatedUnit *array = found(units.arrays, call);
    count_one(units.counts.by_weights[weight_kind(matrix_of(call)) % LORA_RTL_WEIGHTS], !array);
    if (!array) return natively(&lora_kernels::matrix, &lora_rtl_counts::matrix, call);
    std::lock_guard<std::mutex> held(units.lock);
    const auto *c = reinterpret_cast<const lora_matrix *>(call->command);
    uint64_t rows = call->command->flags & LORA_FLAG_SELECTED ? call->state->selected_count
                                                              : call->state->row_count;
    units.counts.simulated++;
    units.counts.products += rows * c->k * c->n;
    bool eight = weight_kind(c) == LORA_WEIGHT_INT8 || weight_kind(c) == LORA_WEIGHT_W4A8;
    lora_rtl_unit which = names_adapter(call) ? LORA_RTL_ADAPT
                          : eight             ? LORA_RTL_INT8_ARRAY
                                              : LORA_RTL_FP16_ARRAY;
    return run(array, which, call, &units.counts.cycles);
}

int vector(void *, lora_unit_call *call) {
    SimulatedUnit *unit = found(units.vectors, call);
    const auto *c = reinterpret_cast<const lora_vector *>(call->command);
    count_one(units.counts.by_operation[c->op % LORA_RTL_OPERATIONS], !unit);
    if (!unit) return natively(&lora_kernels::vector, &lora_rtl_counts::vector, call);
    std::lock_guard<std::mutex> held(units.lock);
    units.counts.vectors++;
    return run(unit, LORA_RTL_VECTOR, call, &units.counts.vector_cycles);
}

int attention(void *, lora_unit_call *call) {
    SimulatedUnit *unit = found(units.attentions, call);
    count_one(units.counts.by_cache[call->list->kv_type % LORA_RTL_CACHES], !unit);
    if (!unit) return natively(&lora_kernels::attention, &lora_rtl_counts::attention, call);
    std::lock_guard<std::mutex> held(units.lock);
    units.counts.attentions++;
    return run(unit, LORA_RTL_ATTEND, call, &units.counts.attention_cycles);
}

int adapter(void *, lora_unit_call *call) {
    SimulatedUnit *unit = found(units.adapters, call);
    if (!unit) return natively(&lora_kernels::adapter, &lora_rtl_counts::adapter, call);
    std::lock_guard<std::mutex> held(units.lock);
    units.counts.adapters++;
    return run(unit, LORA_RTL_ADAPT, call, &units.counts.adapter_cycles);
}

const lora_kernels table = {
    sizeof(lora_kernels), 0, nullptr, "rtl", matrix, vector, attention, adapter, nullptr, nullptr,
};

/* A library may be built with some of the units. */
void make_units(uint32_t seed) {
#ifdef LORA_RTL_FP16
    units.arrays.push_back(make_array_fp16(seed));
#endif
#ifdef LORA_RTL_INT8
    units.arrays.push_back(make_array_int8(seed));
#endif
#ifdef LORA_RTL_VFU
    units.vectors.push_back(make_vector_unit(seed));
#endif
#ifdef LORA_RTL_ATTENTION
    units.attentions.push_back(make_attention_unit(seed));
#endif
#ifdef LORA_RTL_ADAPTER
    units.adapters.push_back(make_adapter_unit(seed));
#endif
}

} // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED uint32_t lora_rtl_version(void) { return LORA_RTL_VERSION; }

EXPORTED const lora_kernels *lora_rtl_open(const lora_kernels *native, uint32_t seed) {
    std::lock_guard<std::mutex> held(units.lock);
    try {
        if (units.arrays.empty() && units.vectors.empty() && units.attentions.empty() &&
            units.adapters.empty())
            make_units(seed);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
    units.native = native;
    return &table;
}

EXPORTED void lora_rtl_read_counts(struct lora_rtl_counts *counts) {
    std::lock_guard<std::mutex> held(units.lock);
    *counts = units.counts;
}

EXPORTED void lora_rtl_memory(uint32_t latency, uint32_t busy) {
    std::lock_guard<std::mutex> held(units.lock);
    units.timing.latency = latency ? latency : 1;
    units.timing.busy = busy < 255 ? busy : 255;
}

EXPORTED void lora_rtl_disturb(uint32_t seed, uint32_t attempts) {
    std::lock_guard<std::mutex> held(units.lock);
    units.disturbance = {Random(seed), attempts, ""};
}

EXPORTED void lora_rtl_read_disturbed(enum lora_rtl_unit unit, struct lora_rtl_disturbed *counts) {
    std::lock_guard<std::mutex> held(units.lock);
    *counts = units.disturbed[unit];
}

EXPORTED const char *lora_rtl_disturb_error(void) { return units.disturbance.error.c_str(); }
