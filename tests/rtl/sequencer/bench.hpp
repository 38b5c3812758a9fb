// One sequencer between its memory and its units. What the board does is told to the reference.
#ifndef TEST_SEQUENCER_BENCH_HPP
#define TEST_SEQUENCER_BENCH_HPP

#include <memory>

#include <verilated.h>

#include "board.hpp"

constexpr uint64_t ENDLESS = 4000000;

class Bench {
  public:
    Bench(Random &random, List &list, bool stepped)
        : random_(random), list_(list), stepped_(stepped) {
        context_.randReset(2); // registers and memories begin with any bits
        context_.randSeed(static_cast<int>(random.between(1, 0x7ffffffe)));
        model_.reset(new VSequencer(&context_));
    }
    ~Bench() { model_->final(); }

    VSequencer &model() { return *model_; }

    void clock() {
        model_->eval(); // what depends on the inputs alone
        if (!model_->rst) memory_->edge(*model_, cycle_);
        if (!model_->rst) units_->edge(*model_, cycle_);
        model_->clk = 1;
        model_->eval();
        model_->clk = 0;
        model_->eval();
        cycle_++;
    }

    void power_up() {
        VSequencer &s = *model_;
        s.clk = s.start = s.give_up = s.seal_write = s.ballot_done = 0;
        s.ar_ready = s.r_valid = s.result_valid = 0;
        s.unit_idle = (1u << LORA_UNITS) - 1;
        s.hold_units = 0;
        s.eval();
        reset(3);
    }

    void reset(uint32_t for_cycles) {
        model_->rst = 1;
        while (for_cycles--) {
            memory_->reset();
            units_->reset();
            model_->ar_ready = model_->r_valid = model_->result_valid = 0;
            clock();
        }
        model_->rst = 0;
        memory_->reset();
        units_->reset();
    }

    void use(Memory *memory, Units *units) {
        memory_ = memory;
        units_ = units;
    }

    void seal() {
        uint32_t id = random_.below(2);
        list_id_ = id;
        for (uint32_t at = 0; at < list_.run.command_count; at += LORA_CHUNK_COMMANDS) {
            uint32_t left = std::min<uint32_t>(LORA_CHUNK_COMMANDS, list_.run.command_count - at);
            model_->seal_write = 1;
            model_->seal_where = static_cast<uint16_t>(id << 9 | at / LORA_CHUNK_COMMANDS);
            model_->seal_data = reference_seal(&list_.commands[at], left * LORA_LINE_BYTES);
            clock();
        }
        model_->seal_write = 0;
    }

    void begin(uint64_t base) {
        VSequencer &s = *model_;
        const test_run &run = list_.run;
        s.dry = run.dry;
        s.moves_kv = run.moves_kv;
        s.votes = run.rows > 0 && run.boards > 1; // as fw_vote has it
        s.poisons = run.boards > 1;
        s.rows = run.rows;
        s.selected = run.selected;
        s.list_id = list_id_;
        s.list_line = base;
        s.command_count = run.command_count;
        s.counter_count = run.counter_count;
        s.local_limit = s.remote_limit = ENDLESS;
        s.start = 1;
        clock();
        s.start = 0;
        quiet_ = poisoned_ = ballots_ = progress_ = 0;
        units_->begun.clear();
        for (Unit &unit : units_->unit) unit.started = 0;
        for (uint32_t &seen : seen_) seen = 0;
        began_ = cycle_;
    }

    // One cycle of a run; what the board did is told to the reference.
    void step(bool compare) {
        VSequencer &s = *model_;
        bool release = !stepped_ || quiet_ >= memory_->quiet();
        memory_->drive(s, cycle_);
        units_->drive(s, cycle_, release);
        if (stepped_ && release) one_result(s);
        if (compare && (stepped_ ? release && s.result_valid == 0 : random_.once_in(8)) &&
            units_->advance_segments()) {
            progress_++;
            reference_segments(units_->groups);
            quiet_ = 0;
        }
        drive_ballot(s);
        s.eval();
        note(s, compare);
        clock();
        if (compare) check_starts();
    }

    void give_up() {
        model_->give_up = 1;
        step(false);
        model_->give_up = 0;
        for (uint32_t n = 0; model_->busy; n++) {
            if (model_->unit_start && n > 0) fail("a start behind an abort");
            if (model_->ar_valid && n > 40 && !memory_->busy() && model_->ar_ready)
                fail("a read behind an abort");
            if (n > 5000) fail("an abort does not end");
            step(false);
        }
        if (memory_->busy()) fail("not busy, but a burst is under way");
        if (!units_->idle()) fail("not busy, but a unit is not idle");
        if (!model_->failed || model_->blame_code != LORA_OK)
            fail("an abort is no failure of the run");
        if (poisoned_) fail("an abort sends poison");
    }

    uint16_t counter(uint32_t number) {
        model_->peek_counter = static_cast<uint16_t>(number);
        for (int i = 0; i < 3; i++) clock();
        return model_->peek_value;
    }

    bool settled() const { return quiet_ >= memory_->quiet(); }
    uint64_t cycle() const { return cycle_; }
    uint64_t ran() const { return cycle_ - began_; }
    uint32_t poisoned() const { return poisoned_; }
    uint32_t ballots() const { return ballots_; }
    uint32_t progress() const { return progress_; } // of gathers that run, told to the reference
    Units &units() { return *units_; }

  private:
    void one_result(VSequencer &s) {
        uint32_t ready = s.result_valid, chosen = 0;
        for (uint32_t u = 1, seen = 0; u < LORA_UNITS; u++)
            if (ready >> u & 1 && random_.below(++seen) == 0) chosen = 1u << u;
        s.result_valid = static_cast<uint8_t>(chosen);
    }

    void drive_ballot(VSequencer &s) {
        if (!s.ballot) s.ballot_done = 0;
        else if (!s.ballot_done && random_.once_in(10)) s.ballot_done = 1, ballots_++;
    }

    // Before the edge: which result the sequencer takes.
    void note(VSequencer &s, bool compare) {
        uint32_t taken = s.result_valid & s.result_ready;
        bool moves = taken || s.unit_announce || s.unit_start || s.ar_valid || s.r_valid ||
                     s.ballot;
        bool clears = ran() < list_.run.counter_count / 8 + 20; // the counters, when a run begins
        quiet_ = moves || clears || memory_->busy() ? 0 : quiet_ + 1;
        poisoned_ += s.poison;
        if (s.result_ready & ~s.result_valid) fail("a result is taken that is not there");
        for (uint32_t u = 1; compare && u < LORA_UNITS; u++)
            if (taken >> u & 1) reference_result(u, units_->unit[u].state, &units_->unit[u].result);
    }

    // Each start that there is must be the reference's; in steps, all of the reference's must be
    // here.
    void check_starts() {
        for (uint32_t u = 1; u < LORA_UNITS; u++) {
            const Unit &unit = units_->unit[u];
            if (unit.started > seen_[u]) {
                const test_start *start = reference_start(u, seen_[u]++);
                uint32_t index = model_->last_index[u];
                if (!start) fail("unit %u starts command %u too early", u, index);
                if (index != start->index || unit.rows != start->rows)
                    fail("unit %u starts command %u of %u rows, expected %u of %u", u, index,
                         unit.rows, start->index, start->rows);
                if (std::memcmp(&unit.command, &list_.commands[index], LORA_LINE_BYTES) != 0)
                    fail("command %u arrives changed", index);
            }
            if (stepped_ && quiet_ == memory_->quiet() && reference_start(u, seen_[u]) &&
                !model_->failed)
                fail("unit %u does not start command %u", u, reference_start(u, seen_[u])->index);
        }
    }

    Random &random_;
    List &list_;
    bool stepped_;
    VerilatedContext context_{};
    std::unique_ptr<VSequencer> model_;
    Memory *memory_ = nullptr;
    Units *units_ = nullptr;
    uint64_t cycle_ = 0, began_ = 0;
    uint32_t quiet_ = 0, poisoned_ = 0, ballots_ = 0, progress_ = 0, seen_[LORA_UNITS] = {},
             list_id_ = 0;
};

#endif
