// Units that the core starts by their mailboxes, for card.hpp. They share one port: a unit reads
// its command, a word a cycle, works, and writes its result; a Router also what it has completed so
// far.
#ifndef LORA_TEST_MAIL_UNITS_HPP
#define LORA_TEST_MAIL_UNITS_HPP

#include "VControl.h"
#include "units.hpp"

#include <algorithm>
#include <cstring>
#include <deque>

class MailUnits {
    // Words of a mailbox (hal_card.h), and bits of its control word.
    enum : uint32_t {
        CONTROL = 0,
        STATUS = 1,
        LIST = 10,
        COMMAND = 16,
        SEGMENTS = 32,
        WAITS = 40,
        POINTERS = 2,
        READ_WORDS = POINTERS + 16,
        DONE = 2,
        FAILED = 8,
        COUNT = 8
    };

  public:
    explicit MailUnits(Units &works) : works_(works) {}

    // Before a clock edge.
    void drive(VControl &c) {
        c.unit_write = 0;
        bool reads = reading() && units_[now_].cycle; // not to be interrupted
        if (!reads && !writes_.empty()) return write(c);
        if (!reading()) choose();
        Unit &unit = units_[now_];
        if (reading()) read(c, unit);
        else if (unit.runs) work(unit);
        if (!writes_.empty()) write(c);
    }

    // Behind it: starts and stops. `stopped_router`: a list's gather was, by the sequencer.
    void see(const VControl &c, bool stopped_router) {
        for (uint32_t u = 0; u < COUNT; u++) {
            if (c.mail_abort >> u & 1) stop(u);
            if (c.mail_start >> u & 1) begin(u);
        }
        if (stopped_router) write_progress();
    }

    void reset() {
        for (uint32_t u = 0; u < COUNT; u++) stop(u);
        writes_.clear();
    }

  private:
    struct Unit {
        bool runs = false, started = false;
        uint32_t cycle = 0, read[READ_WORDS] = {};
        uint32_t groups[Units::SEGMENTS] = {}, progress[Units::PROGRESS_WORDS] = {};
        bool shown = false; // `progress`
    };
    struct Write {
        uint32_t unit, word, value;
    };

    bool reading() const { return units_[now_].runs && !units_[now_].started; }

    void choose() { now_ = (now_ + 1) % COUNT; }

    void begin(uint32_t u) {
        units_[u] = Unit();
        units_[u].runs = true;
        if (u == Units::ROUTER) write_segments(units_[u]);
    }

    void stop(uint32_t u) {
        auto its = [u](const Write &one) { return one.unit == u; };
        writes_.erase(std::remove_if(writes_.begin(), writes_.end(), its), writes_.end());
        if (units_[u].runs && units_[u].started) {
            works_.abort(u);
            if (u == Units::ROUTER) write_progress();
        }
        units_[u].runs = false;
    }

    void read(VControl &c, Unit &unit) {
        uint32_t now = unit.cycle++;
        c.unit_which = now_;
        if (now) unit.read[now - 1] = c.unit_data;
        c.unit_word = now < POINTERS ? LIST + now : COMMAND + now - POINTERS;
        if (now < READ_WORDS) return;
        unit.started = true;
        works_.start(now_, unit.read + POINTERS, unit.read[0], unit.read[1]);
    }

    void work(Unit &unit) {
        Result result;
        if (works_.over(now_, result)) {
            unit.runs = false;
            return write_result(result);
        }
        if (now_ == Units::ROUTER) show_router(unit);
    }

    // The core reads these while the Router works.
    void show_router(Unit &unit) {
        uint32_t groups[Units::SEGMENTS], progress[Units::PROGRESS_WORDS];
        works_.segments(groups);
        if (memcmp(groups, unit.groups, sizeof groups) != 0) {
            memcpy(unit.groups, groups, sizeof groups);
            write_segments(unit);
        }
        if (!works_.progress(progress)) return;
        if (unit.shown && memcmp(progress, unit.progress, sizeof progress) == 0) return;
        memcpy(unit.progress, progress, sizeof progress);
        unit.shown = true;
        write_progress();
    }

    // Words STATUS to FRAMES_DROPPED, then the control word.
    void write_result(const Result &result) {
        const uint32_t words[] = {
            result.status, result.nonfinite_count, result.nonfinite_row, result.value,
            result.port,   result.frames[0],       result.frames[1],     result.frames[2]};
        bool failed = result.state == Result::FAILED;
        if (now_ == Units::ROUTER && failed) write_progress();
        for (uint32_t i = 0; i < sizeof words / sizeof words[0]; i++)
            writes_.push_back({now_, STATUS + i, words[i]});
        writes_.push_back({now_, CONTROL, failed ? uint32_t(FAILED) : uint32_t(DONE)});
    }

    void write_segments(const Unit &unit) {
        for (uint32_t i = 0; i < Units::SEGMENTS; i++)
            writes_.push_back({Units::ROUTER, SEGMENTS + i, unit.groups[i]});
    }

    // What a Router that was stopped has done.
    void write_progress() {
        uint32_t words[Units::PROGRESS_WORDS];
        if (!works_.progress(words)) return;
        for (uint32_t i = 0; i < Units::PROGRESS_WORDS; i++)
            writes_.push_back({Units::ROUTER, WAITS + i, words[i]});
    }

    void write(VControl &c) {
        c.unit_write = 1;
        c.unit_which = writes_.front().unit;
        c.unit_word = writes_.front().word;
        c.unit_stored = writes_.front().value;
        writes_.pop_front();
    }

    Units &works_;
    Unit units_[COUNT];
    std::deque<Write> writes_;
    uint32_t now_ = 0;
};

#endif
