// Time with several clocks, and what a flop sees of a bit that has just changed: in the window
// before its edge the old or the new value, each bit for itself. A memory's place that was written
// in the window has wrong bits. The sources ask (crossing_model.sv) where they are built with
// LORA_METASTABLE.
#ifndef LORA_TEST_METASTABLE_HPP
#define LORA_TEST_METASTABLE_HPP

#include <cstdint>

namespace metastable {

extern uint64_t now;    // of the driver's clocks
extern uint64_t window; // before an edge
extern uint64_t torn;   // bits that were neither surely old nor surely new

void seed(uint32_t value);

} // namespace metastable

#endif
