// What a board's units do with their commands, and how they end.
#ifndef LORA_TEST_UNITS_HPP
#define LORA_TEST_UNITS_HPP

#include <cstdint>

struct Result {
    enum : uint32_t { DONE = 2, FAILED = 3 };
    uint32_t state = DONE; // enum lora_unit_state
    uint32_t status = 0, nonfinite_count = 0, nonfinite_row = 0, value = 0, port = 0;
    uint32_t frames[3] = {}; // sent, received, dropped
};

class Units {
  public:
    enum : uint32_t { SEGMENTS = 8, ROUTER = 3, PROGRESS_WORDS = 5 };
    virtual ~Units() = default;
    // `list` and `state`: where the list's header and the step's state lie in local memory.
    virtual void start(uint32_t unit, const uint32_t *command, uint32_t list, uint32_t state) = 0;
    // Whether the command is over; then the unit is idle again.
    virtual bool over(uint32_t unit, Result &result) = 0;
    virtual void abort(uint32_t unit) { (void)unit; }
    // What the trace ports say: a command begins or is done well.
    virtual void trace(uint32_t index, uint32_t rows, bool end) {
        (void)index, (void)rows, (void)end;
    }
    // Row groups of each segment that the Router's gather has completed.
    virtual void segments(uint32_t groups[SEGMENTS]) {
        for (uint32_t i = 0; i < SEGMENTS; i++) groups[i] = 0;
    }
    // The Router's words from CARD_UNIT_WAITS on; false: it keeps none.
    virtual bool progress(uint32_t words[PROGRESS_WORDS]) { return (void)words, false; }
};

#endif
