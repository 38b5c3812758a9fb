// The host before host_port, and the two sides of link_port.
#ifndef LORA_TEST_OTHER_SIDES_HPP
#define LORA_TEST_OTHER_SIDES_HPP

#include "Vports_bench.h"
#include "lite_host.hpp"

#include <cstdint>
#include <map>
#include <random>
#include <string>

class HostSide {
    enum : uint32_t { FIRST = 4, END = 0x1400 / 4, BYTES = 0x2000, SLVERR = 2 };
    // Cycles of a host five times as fast, until reset_pair has told it: four of the control's, and
    // three of its own.
    enum : uint32_t { KNOWN = 23 };

  public:
    HostSide(Vports_bench &bench, uint32_t seed)
        : lite(bench, seed + 1), bench_(bench), chance_(seed) {}

    LiteHost<Vports_bench> lite;
    std::string wrong;
    uint64_t accesses = 0, refused = 0, cut = 0;
    bool gives = true;

    // A reset of the control cuts off what is under way, and what the host asks before it knows.
    void control_resets() { cut_ = true, since_reset_ = 0; }
    uint64_t reached = 0; // accesses that came to the registers

    // Before an edge of the shell's clock.
    void see() {
        lite.see();
        since_reset_++;
        if (bench_.host_rst) {
            if (asked_) unknown(word_);
            asked_ = false;
            return;
        }
        if (asked_ && !lite.pending()) check();
        if (asked_ && ++waits_ > 20000) wrong = "the host's access does not end";
    }

    // Behind it.
    void drive() {
        if (!asked_ && gives && !bench_.host_rst && chance_() % 3 == 0) choose();
        lite.drive();
    }

    // GIE, IER, ISR: `step` runs one access and some more cycles.
    template <class Step> void interrupts(Step step) {
        auto write = [&](uint32_t address, uint32_t value) {
            lite.ask(address, true, value);
            step();
        };
        auto expect = [&](uint32_t isr, bool interrupt, const char *what) {
            lite.ask(12, false, 0);
            step();
            if (lite.data != isr || bench_.interrupts != interrupt) wrong = what;
        };
        auto happens = [&] {
            bench_.done = 1;
            step();
            bench_.done = 0;
            step();
        };
        happens();
        expect(0, false, "ISR kept what was not enabled");
        write(8, 1);
        happens();
        expect(1, false, "an interrupt without GIE, or none in ISR");
        write(4, 1);
        expect(1, true, "no interrupt with GIE");
        write(12, 1);
        expect(0, false, "ISR was not cleared");
        write(8, 3);
        happens();
        expect(3, true, "ready and done come together");
        write(12, 2);
        expect(1, true, "one bit of ISR was not cleared alone");
        write(12, 1);
        expect(0, false, "ISR was not cleared at the end");
    }

  private:
    void choose() {
        word_ = FIRST + chance_() % (END - FIRST);
        if (chance_() % 8 == 0) word_ = chance_() % (BYTES / 4 - FIRST) + FIRST;
        write_ = chance_() % 2;
        value_ = static_cast<uint32_t>(chance_());
        strobe_ = chance_() % 8 ? 0xf : chance_() % 16;
        lite.ask(word_ * 4, write_, value_, strobe_);
        asked_ = true;
        cut_ = bench_.rst || since_reset_ <= KNOWN;
        waits_ = 0;
    }

    void unknown(uint32_t word) { known_.erase(word); }

    void check() {
        asked_ = false;
        accesses++;
        bool legal = word_ < END && (!write_ || strobe_ == 0xf);
        if (!legal) {
            refused++;
            if (lite.response != SLVERR) wrong = "an access that is none was answered as one";
            return;
        }
        if (lite.response == SLVERR) {
            cut++;
            if (write_) unknown(word_);
            if (!cut_) wrong = "an access failed without a reset";
            return;
        }
        reached++;
        if (write_) known_[word_] = value_;
        else if (known_.count(word_) && known_[word_] != lite.data)
            wrong = "a register has another word";
    }

    Vports_bench &bench_;
    std::mt19937 chance_;
    std::map<uint32_t, uint32_t> known_;
    uint32_t word_ = 0, value_ = 0, strobe_ = 0;
    bool write_ = false, asked_ = false, cut_ = false;
    uint64_t waits_ = 0, since_reset_ = 0;
};

class LinkSide {
    enum : uint32_t { PLACE = 0x1ffff };

  public:
    LinkSide(Vports_bench &bench, uint32_t seed) : bench_(bench), chance_(seed) {}

    std::string wrong;
    uint64_t epochs = 0, poisons = 0, tests = 0, failures = 0;
    bool gives = true;

    void control_drives() {
        bench_.poison = bench_.test_start = 0;
        if (bench_.rst) {
            // what was told before may still be seen for some cycles
            poison_ = true;
            poison_waits_ = 0;
            test_ = false;
            return;
        }
        if (test_ && !bench_.testing && !starts_) ends_test();
        starts_ = false;
        if (test_ && ++waits_ > 20000) wrong = "a link test does not end";
        if (!gives || test_ || (poison_ && ++poison_waits_ < 400)) return;
        poison_ = false;
        uint32_t what = chance_() % 40;
        if (what == 0) bench_.epoch = static_cast<uint32_t>(chance_()), epochs++;
        if (what == 1) bench_.poison = 1, poison_ = true, poison_waits_ = 0, poisons++;
        if (what == 2) begins_test();
    }

    // Before an edge of the link's clock.
    void link_sees() {
        if (bench_.link_rst) {
            reset_ = true;
            answer_in_ = 0;
            return;
        }
        if (bench_.link_poison) {
            seen_poisons++;
            if (bench_.link_list != (bench_.epoch & PLACE)) wrong = "poison of another list";
        }
        if (bench_.link_test_start) {
            if (bench_.link_test != (~bench_.epoch & PLACE)) wrong = "a test of another record";
            answer_in_ = 1 + chance_() % 20;
            fails_ = chance_() % 2;
        }
    }

    // Behind it.
    void link_drives() {
        bench_.link_test_done = bench_.link_test_failed = 0;
        if (!answer_in_ || --answer_in_) return;
        bench_.link_test_done = !fails_;
        bench_.link_test_failed = fails_;
    }

    uint64_t seen_poisons = 0;

    // Nothing is under way.
    void check(bool resets) {
        if (bench_.link_epoch != bench_.epoch) wrong = "the link has another epoch";
        if (seen_poisons > poisons || (!resets && seen_poisons != poisons))
            wrong = "poison was lost or came twice";
    }

  private:
    void begins_test() {
        bench_.test_start = 1;
        test_ = starts_ = true;
        reset_ = false;
        waits_ = 0;
        tests++;
    }

    void ends_test() {
        test_ = false;
        failures += bench_.test_failed;
        if (bench_.test_failed != fails_ && !reset_) wrong = "a link test ended otherwise";
    }

    Vports_bench &bench_;
    std::mt19937 chance_;
    bool poison_ = false, test_ = false, starts_ = false, reset_ = false, fails_ = false;
    uint32_t answer_in_ = 0, poison_waits_ = 0;
    uint64_t waits_ = 0;
};

#endif
