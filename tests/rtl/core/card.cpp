// A board's control as a library: the caller plays host, board memory and units.
#include "card.hpp"

#include <vector>

namespace {

// Returns how the command ends: 0, or what it fails with; HANGS: not at all.
using Start = uint32_t (*)(uint32_t unit, const uint32_t *command);
constexpr uint32_t HANGS = 0xffffffff;

constexpr uint64_t SETTLED = 300; // cycles behind an event, in which all has started that may
constexpr uint32_t ENDS = 1u << 31;

// Units that are done at once, as the caller says, or in an order that he gives.
class ScriptedUnits : public Units {
  public:
    explicit ScriptedUnits(Start start) : start_(start) {}
    const Card *card = nullptr;

    void start(uint32_t unit, const uint32_t *command, uint32_t, uint32_t) override {
        ends_[unit] = start_(unit, command);
        index_[unit] = begun_;
    }
    bool over(uint32_t unit, Result &result) override {
        uint32_t end = ends_[unit];
        result = Result();
        result.status = end & 0xff;
        if (end) result.state = Result::FAILED;
        if (end == HANGS || order_.empty()) return end != HANGS;
        if (index_[unit] != order_.front() || card->cycle() < last_ + SETTLED) return false;
        order_.pop_front();
        last_ = card->cycle();
        return true;
    }
    void trace(uint32_t index, uint32_t, bool end) override {
        events_.push_back(index | (end ? ENDS : 0));
        last_ = card->cycle();
        begun_ = index;
    }

    void end_in_order(const uint32_t *indices, uint32_t count) {
        order_.assign(indices, indices + count);
        events_.clear();
    }
    const std::vector<uint32_t> &events() const { return events_; }

  private:
    Start start_;
    uint32_t ends_[8] = {}, index_[8] = {}, begun_ = 0;
    uint64_t last_ = 0;
    std::deque<uint32_t> order_;
    std::vector<uint32_t> events_;
};

struct Played {
    Played(uint32_t seed, Memory memory, Start start) : units(start), card(seed, memory, units) {
        units.card = &card;
    }
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
// Of all of it, in this cycle.
void card_reset(void *card) { card_of(card)->reset(); }
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
// Accesses of a line of board memory fail; 1: of none.
void card_bad_line(void *card, uint64_t line) { card_of(card)->set_bad_line(line); }
// Cycles that a command of a list takes on a unit.
void card_duration(void *card, uint32_t unit, uint64_t cycles) {
    card_of(card)->units().set_duration(unit, cycles);
}
// Of the last doorbell: commands that the sequencer started; cycles to the first; cycles between
// them in which no unit ran; the cycle in which the last one ended.
void card_measured(void *card, uint64_t found[4]) { card_of(card)->units().measured(found); }

// Results of commands come in this order, by their numbers in the list.
void card_end_in_order(void *card, const uint32_t *indices, uint32_t count) {
    played(card)->units.end_in_order(indices, count);
}
// Since then, at most so many: starts, and ends with bit 31. Returns how many there are.
uint32_t card_events(void *card, uint32_t *events, uint32_t count) {
    const std::vector<uint32_t> &found = played(card)->units.events();
    for (uint32_t i = 0; i < count && i < found.size(); i++) events[i] = found[i];
    return uint32_t(found.size());
}

const char *card_difference(void *card) { return card_of(card)->difference(); }

// Why the core has stopped, 0 if it runs.
uint32_t card_stopped(void *card, uint32_t *pc) {
    VControl &core = card_of(card)->core();
    *pc = core.stopped_pc;
    return core.stopped ? core.stopped_cause : 0;
}

// What the board is: its kind, its serial, the image's CRC.
uint32_t card_identity(void *card, uint32_t which) { return card_of(card)->core().identity[which]; }

} // extern "C"
