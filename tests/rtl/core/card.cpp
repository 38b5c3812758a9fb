// A board's control as a library: the caller plays host, board memory and units.
#include "card.hpp"

namespace {

// Returns how the command ends: 0, or what it fails with; HANGS: not at all.
using Start = uint32_t (*)(uint32_t unit, const uint32_t *command);
constexpr uint32_t HANGS = 0xffffffff;

// Units that are done at once, as the caller says.
class ScriptedUnits : public Units {
  public:
    explicit ScriptedUnits(Start start) : start_(start) {}
    void start(uint32_t unit, const uint32_t *command, uint32_t, uint32_t) override {
        ends_[unit] = start_(unit, command);
    }
    bool over(uint32_t unit, Result &result) override {
        uint32_t end = ends_[unit];
        result = Result();
        result.status = end & 0xff;
        if (end) result.state = Result::FAILED;
        return end != HANGS;
    }

  private:
    Start start_;
    uint32_t ends_[8] = {};
};

struct Played {
    Played(uint32_t seed, Memory memory, Start start) : units(start), card(seed, memory, units) {}
    ScriptedUnits units;
    Card card;
};

Played *played(void *card) { return static_cast<Played *>(card); }

Card *card_of(void *card) { return &played(card)->card; }

} // namespace

extern "C" {

void *card_new(uint32_t seed, Memory memory, Start start) {
    return new Played(seed, memory, start);
}
void card_delete(void *card) { delete played(card); }
void card_begin(void *card, const uint8_t *code, uint32_t bytes) {
    card_of(card)->begin(code, bytes);
}
void card_run(void *card, uint64_t cycles) {
    uint32_t none;
    card_of(card)->run(cycles);
    while (card_of(card)->take_store(none)) continue;
}
uint32_t card_host_read(void *card, uint32_t word) { return card_of(card)->host_read(word); }
void card_host_write(void *card, uint32_t word, uint32_t value) {
    card_of(card)->host_write(word, value);
}
uint64_t card_cycles(void *card) { return card_of(card)->cycle(); }
uint64_t card_instructions(void *card) { return card_of(card)->instructions(); }

void card_read_cycles(void *card, uint32_t cycles) { card_of(card)->set_read_cycles(cycles); }
// Cycles that a command of a list takes on a unit.
void card_duration(void *card, uint32_t unit, uint64_t cycles) {
    card_of(card)->units().set_duration(unit, cycles);
}
// Of the last doorbell: commands that the sequencer started; cycles to the first; cycles between
// them in which no unit ran; the cycle in which the last one ended.
void card_measured(void *card, uint64_t found[4]) { card_of(card)->units().measured(found); }

const char *card_difference(void *card) { return card_of(card)->difference(); }

// Why the core has stopped, 0 if it runs.
uint32_t card_stopped(void *card, uint32_t *pc) {
    VControl &core = card_of(card)->core();
    *pc = core.stopped_pc;
    return core.stopped ? core.stopped_cause : 0;
}

} // extern "C"
