// A board's control with its clock: the caller plays host, board memory and units; `Bus` has its
// ports to the first two (plain/bus.hpp, or ../crossing/control/bus.hpp among unrelated clocks).
// Beside the core runs the reference: what an instruction writes is compared. Seed 0: memory takes
// each request and answers after the cycles that were set; others: both as it happens.
#ifndef LORA_TEST_CARD_HPP
#define LORA_TEST_CARD_HPP

#include <bus.hpp>
#include <mail_units.hpp>
#include <run_units.hpp>

#include "VControl.h"
#include "reference.h"
#include "verilated.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <random>

class Card {
    static constexpr uint32_t CLEAR_CYCLES = 300, IDENTITIES = 3;

  public:
    Card(uint32_t seed, Memory memory, Units &works)
        : random_(seed), varied_(seed != 0), works_(works), mail_(works), units_(works) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed & 0x7fffffff) | 1);
        core_ = std::make_unique<VControl>(&context_);
        bus_ = std::make_unique<Bus>(*core_, memory, random_, varied_);
        core_->clk = 0;
        core_->rst = core_->restart = 1;
        core_->load_valid = 0;
        for (uint32_t i = 0; i < IDENTITIES; i++)
            core_->identity[i] = (seed + 1) * 0x9e3779b1 + i * 0x85ebca6b;
        bus_->quiet();
        units_.quiet(*core_);
        for (uint32_t i = 0; i < Bus::RESET_CYCLES; i++) clock();
        core_->rst = 0;
        bus_->release();
        clock();
        bus_->begin();
        begun_ = true;
    }

    // The model's end is of the thread's context, which would be that of the last card that
    // this thread has simulated.
    ~Card() { Verilated::threadContextp(&context_); }

    // The control program begins, again if it ran. Before the first time each register gets a value
    // that the reference knows.
    void begin(const uint8_t *code, uint32_t bytes) {
        if (instructions_ == 0) {
            uint32_t words[63];
            for (uint32_t r = 1; r < 32; r++) {
                words[2 * r - 2] = static_cast<uint32_t>(random_()) << 12 | r << 7 | 0x37;
                words[2 * r - 1] = static_cast<uint32_t>(random_()) << 20 | r << 15 | r << 7 | 0x13;
            }
            words[62] = 0x00100073; // ebreak
            load(reinterpret_cast<uint8_t *>(words), sizeof words);
            while (!core_->stopped) clock();
        }
        load(code, bytes);
        for (uint32_t i = 0; i < CLEAR_CYCLES; i++) clock(); // of the host's registers
    }

    // Until the done bit, some cycles later, or until the core has stopped.
    void run(uint64_t cycles) {
        for (uint64_t end = cycle_ + cycles;
             cycle_ != end && !bus_->done() && !core_->stopped && !differs_;)
            clock();
    }

    void clock() {
        bus_->advance();
        bus_->drive();
        mail_.drive(*core_);
        units_.drive(*core_, varied_ ? random_() % 16 : 0);
        core_->eval();
        if (core_->retired && begun_) compare();
        bus_->see();
        units_.see(*core_, cycle_);
        if (bus_->doorbell()) units_.begin(cycle_);
        bus_->rise();
        if (begun_) see_pulses();
        if (*bus_->failure() && !differs_) {
            differs_ = true;
            snprintf(difference_, sizeof difference_, "%s", bus_->failure());
        }
        cycle_++;
    }

    // Of all of it, at any cycle: buses and units forget what was asked. Then begin().
    void reset() {
        core_->rst = 1;
        for (uint32_t i = 0; i < Bus::HOLD_CYCLES; i++) clock(); // what is being done is done
        begun_ = false;
        for (uint32_t i = 0; i < 3; i++) {
            units_.reset();
            mail_.reset();
            bus_->reset();
            clock();
        }
        core_->rst = 0;
        clock();
        bus_->begin();
        begun_ = true;
    }

    uint32_t host_read(uint32_t word) {
        host(word, false, 0);
        return bus_->answer();
    }

    void host_write(uint32_t word, uint32_t value) { host(word, true, value); }

    // The same value without a read, which would clear the done bit.
    uint32_t host_look(uint32_t word) {
        bus_->look(word);
        do clock();
        while (!bus_->answered() && !differs_);
        return bus_->answer();
    }

    // A store of the core outside of local memory that is done: its address. False: none is left.
    bool take_store(uint32_t &address) {
        if (stores_.empty()) return false;
        address = stores_.front();
        stores_.pop_front();
        return true;
    }

    // Pulses to the links since the last call.
    bool take_poison() { return take(poisons_); }
    bool take_link_test() { return take(link_tests_); }

    // The core's local memory, as the reference has it.
    uint8_t *local(uint32_t address) { return reference_.memory + address % LOCAL_BYTES; }

    // A word there, by the port that others have.
    void store_local(uint32_t address, uint32_t value) {
        memcpy(&before_, local(address), 4);
        memcpy(local(address), &value, 4);
        after_ = value;
        until_ = UINT64_MAX;
        core_->load_valid = 1;
        load_word(address / 4, value);
        core_->load_valid = 0;
        until_ = cycle_ + LOAD_CYCLES;
    }

    void set_read_cycles(uint32_t cycles) { bus_->set_read_cycles(cycles); }
    void set_bad_line(uint64_t line) { bus_->set_bad_line(line); }
    RunUnits &units() { return units_; }
    VControl &core() { return *core_; }
    uint64_t cycle() const { return cycle_; }
    uint64_t instructions() const { return instructions_; }
    const char *difference() const { return difference_; }

  private:
    // Of the edge that was: mailboxes, the trace, the links.
    void see_pulses() {
        mail_.see(*core_, units_.stopped_router());
        if (core_->trace_valid)
            works_.trace(core_->trace_index, core_->trace_rows, core_->trace_end);
        poisons_ += bus_->poison();
        link_tests_ += bus_->link_test();
    }

    static bool take(uint32_t &pulses) {
        bool any = pulses != 0;
        pulses = 0;
        return any;
    }

    // By the loader's port, while the core is held.
    void load(const uint8_t *code, uint32_t bytes) {
        core_->restart = 1;
        clock();
        for (uint32_t at = 0; at < bytes; at += 4) {
            uint32_t word = 0;
            memcpy(&word, code + at, bytes - at < 4 ? bytes - at : 4);
            core_->load_valid = 1;
            load_word(at / 4, word);
        }
        core_->load_valid = 0;
        core_->restart = 0;
        memcpy(reference_.memory, code, bytes);
        reference_.pc = 0;
        reference_.bus = read_as_found;
        reference_.context = this;
    }

    void load_word(uint32_t place, uint32_t value) {
        core_->load_write = 0xf;
        core_->load_word = place;
        core_->load_stored = value;
        core_->eval();
        while (!core_->load_ready) clock();
        clock();
    }

    // What the blocks answer is the hardware's own: the value that was loaded.
    static int read_as_found(void *context, bus_access *access) {
        auto &card = *static_cast<Card *>(context);
        if (access->bytes) card.stores_.push_back(access->address);
        else access->data = card.core_->retired_value << 8 * (access->address & 3);
        return 1;
    }

    // The reference has a word of `store_local` at once, the core when its port takes it.
    bool reads_before_store(const retired &expected) const {
        return cycle_ <= until_ && core_->retired_pc == expected.pc && expected.writes &&
               core_->retired_writes && core_->retired_rd == expected.rd &&
               expected.value == after_ && core_->retired_value == before_;
    }

    void compare() {
        retired expected;
        uint32_t cause = reference_step(&reference_, &expected);
        instructions_++;
        bool same = core_->retired_pc == expected.pc && core_->retired_writes == expected.writes &&
                    (!expected.writes ||
                     (core_->retired_rd == expected.rd && core_->retired_value == expected.value));
        if (!same && reads_before_store(expected)) {
            reference_.x[expected.rd] = core_->retired_value;
            same = true;
        }
        if ((same && !cause) || differs_) return;
        differs_ = true;
        snprintf(difference_, sizeof difference_,
                 "%#x writes %u: x%u = %#x; expected %#x, %u: x%u = %#x, cause %u",
                 core_->retired_pc, core_->retired_writes, core_->retired_rd, core_->retired_value,
                 expected.pc, expected.writes, expected.rd, expected.value, cause);
    }

    void host(uint32_t word, bool write, uint32_t value) {
        bus_->ask(word, write, value);
        do clock();
        while (!bus_->answered() && !differs_);
    }

    std::minstd_rand random_;
    bool varied_, differs_ = false, begun_ = false;
    char difference_[200] = "";
    machine reference_ = {};
    Units &works_;
    MailUnits mail_;
    RunUnits units_;
    VerilatedContext context_;
    std::unique_ptr<VControl> core_;
    std::unique_ptr<Bus> bus_;
    uint64_t cycle_ = 0, instructions_ = 0;
    static constexpr uint64_t LOAD_CYCLES = 4; // at most, from a load's address to its retirement
    uint32_t before_ = 0, after_ = 0;
    uint64_t until_ = 0;
    uint32_t poisons_ = 0, link_tests_ = 0;
    std::deque<uint32_t> stores_;
};

#endif
