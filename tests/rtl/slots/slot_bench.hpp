// A slot between a test that plays the sequencer and one that plays the unit and its memory port.
// `Plays` knows the kind of slot: what fields the unit must get, and the lookups of rows.
#ifndef LORA_TEST_SLOT_BENCH_HPP
#define LORA_TEST_SLOT_BENCH_HPP

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <verilated.h>

#include "lora/abi.h"
#include "lora/kernels.h"
#include "matmul_call.hpp"
#include "random.hpp"

[[noreturn]] inline void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    std::fprintf(stderr, "\n");
    va_end(arguments);
    std::exit(1);
}

// A command, its list and step, and how the emulator's kernels end it.
struct Case {
    lora_command command;
    lora_list list;
    lora_step_state state;
    uint32_t status;
    uint32_t late; // refused by the memory port alone
};

inline std::vector<Case> read_cases(const char *path, uint32_t &onchip_bytes) {
    std::ifstream file(path, std::ios::binary);
    uint32_t head[2] = {};
    file.read(reinterpret_cast<char *>(head), sizeof head);
    std::vector<Case> cases(head[1]);
    file.read(reinterpret_cast<char *>(cases.data()),
              static_cast<std::streamsize>(cases.size() * sizeof(Case)));
    if (!file) fail("%s is cut short", path);
    onchip_bytes = head[0];
    return cases;
}

template <class Slot, class Plays> class SlotBench {
  public:
    SlotBench(std::vector<Case> cases, uint32_t onchip_bytes, uint32_t seed)
        : cases_(std::move(cases)), random_(seed) {
        context_.randReset(2);
        context_.randSeed(static_cast<int>(seed + 1));
        slot_ = std::make_unique<Slot>(&context_);
        Slot &s = *slot_;
        s.clk = 0;
        s.onchip_bytes = onchip_bytes;
        quiet();
        reset();
    }
    ~SlotBench() { slot_->final(); }

    void run() {
        for (at_ = 0; at_ < cases_.size(); at_++) one();
        std::string text = "{";
        for (const auto &[name, count] : counts)
            text += (text.size() > 1 ? ", \"" : "\"") + name + "\": " + std::to_string(count);
        std::printf("%s}\n", text.c_str());
    }

    std::map<std::string, uint64_t> counts;

  private:
    enum class Unit { READY, RUNS, CLEARS };
    enum class How { PLAIN, ABORT, RESET, ERROR };
    static constexpr uint32_t LIMIT = 20000, CLEAR_CYCLES = 33;

    void quiet() {
        Slot &s = *slot_;
        s.unit_announce = s.unit_start = s.unit_abort = s.result_ready = 0;
        s.line_refused = s.line_error = s.write_refused = s.write_error = s.write_open = 0;
        s.done = 0;
        s.rst = 0;
    }

    void edge() {
        slot_->clk = 1;
        slot_->eval();
        slot_->clk = 0;
        slot_->eval();
    }

    void reset() {
        slot_->rst = 1;
        slot_->command_ready = 0;
        slot_->eval();
        edge();
        slot_->rst = 0;
        unit_ = Unit::CLEARS;
        left_ = CLEAR_CYCLES;
        told_ = false;
    }

    lora_unit_call call_of(const Case &it) const {
        lora_unit_call call{};
        call.size = sizeof call;
        call.command = &it.command;
        call.list = &it.list;
        call.state = &it.state;
        return call;
    }

    void announce(size_t which) {
        std::memcpy(&slot_->unit_line[0], &cases_[which].command, sizeof(lora_command));
        lora_unit_call call = call_of(cases_[which]);
        slot_->unit_rows = static_cast<uint8_t>(rows_of(&call));
        slot_->unit_announce = 1;
    }

    // The unit and its port in the cycle before an edge, then the edge.
    void cycle() {
        Slot &s = *slot_;
        const Case &it = cases_[at_];
        lora_unit_call call = call_of(it);
        s.command_ready = unit_ == Unit::READY;
        if (unit_ == Unit::RUNS) Plays::ask(s, call, random_);
        s.eval();
        Plays::answer(s, call, asked_);
        s.eval();
        if (asked_unit_) {
            std::string wrong = Plays::wrong_row(s, call, asked_);
            if (!wrong.empty()) fail("case %zu: row %u: %s", at_, asked_.row, wrong.c_str());
        }
        bool takes = s.command_valid && s.command_ready, stops = s.abort_valid;
        if (takes || unit_ == Unit::RUNS) {
            std::string wrong = Plays::wrong_field(s, call);
            if (!wrong.empty()) fail("case %zu: the unit gets %s", at_, wrong.c_str());
        }
        if (takes && unit_ == Unit::RUNS) fail("case %zu: told twice", at_);
        if (s.result_valid && (s.write_open || unit_ == Unit::RUNS))
            fail("case %zu: a result before the command's end", at_);
        if (unit_ == Unit::READY && open_ == 0 && !running_ && !told_ && !s.unit_start &&
            !s.unit_announce && !s.unit_idle)
            fail("case %zu: not idle", at_);
        if ((unit_ != Unit::READY || open_ || running_ || told_) && s.unit_idle)
            fail("case %zu: idle too early", at_);
        Plays::note(s, asked_);
        asked_unit_ = unit_ == Unit::RUNS && !s.done;
        edge();
        s.unit_announce = s.unit_start = s.done = 0;
        s.line_refused = s.line_error = s.write_refused = s.write_error = 0;
        if (unit_ == Unit::CLEARS && --left_ == 0) unit_ = Unit::READY;
        if (takes) {
            unit_ = Unit::RUNS;
            started_ = true;
            left_ = 1 + random_.below(60);
        }
        if (stops) {
            unit_ = Unit::CLEARS;
            left_ = CLEAR_CYCLES;
        }
        if (open_) open_--;
        s.write_open = open_ != 0;
    }

    // Once: what the port says.
    void port_fails(bool refused, bool write) {
        Slot &s = *slot_;
        counts[std::string(refused ? "refused_" : "failed_") + (write ? "write" : "line")]++;
        (refused ? write ? s.write_refused : s.line_refused
         : write ? s.write_error
                 : s.line_error) = 1;
    }

    // What is to happen with a command once it is told.
    struct Plan {
        How how = How::PLAIN;
        bool starts = false, bad_index = false;
        bool port = false, behind = false; // the memory port fails, after the unit is done
        uint32_t expected = LORA_OK, until = 0, announce = 0, last_open = 0;
    };

    Plan plan(const Case &it, const lora_unit_call &call) {
        Plan p;
        if (random_.once_in(8)) p.how = random_.once_in(3) ? How::RESET : How::ABORT;
        else if (it.status == LORA_OK && random_.once_in(6)) p.how = How::ERROR;
        p.starts = (it.status == LORA_OK || it.late) && !Plays::nothing(call);
        p.expected = it.status;
        if (p.how == How::ERROR && p.starts) p.expected = LORA_ERR_UNIT;
        p.bad_index = p.how == How::PLAIN && it.status == LORA_OK && p.starts &&
                      Plays::may_refuse(call) && random_.once_in(2);
        if (p.bad_index) p.expected = LORA_ERR_SIZE;
        p.port = p.starts && (p.expected == LORA_ERR_UNIT || it.late);
        p.behind = p.port && random_.once_in(2);
        p.last_open = random_.below(2);
        p.until = random_.below(it.status == LORA_OK ? 250 : 60);
        p.announce = random_.below(150);
        return p;
    }

    void tell() {
        bool at_once = random_.once_in(2);
        while (!told_) {
            bool now = random_.once_in(3);
            if (now) announce(at_);
            cycle();
            told_ = now;
        }
        while (unit_ == Unit::READY ? random_.once_in(2) : !at_once) cycle();
    }

    // What the unit and its port do in the cycle to come.
    void play(const Plan &p, const lora_unit_call &call) {
        Slot &s = *slot_;
        if (unit_ == Unit::RUNS && --left_ == 0) {
            if (p.port && !p.behind) { // then it goes on until it is stopped
                if (!failed_) port_fails(p.expected == LORA_ERR_ADDRESS, random_.once_in(2));
                failed_ = true;
                left_ = 1;
            } else {
                s.done = ended_ = true;
                count_ = random_.once_in(2) ? 0 : 1 + random_.below(1000);
                row_ = count_ ? random_.below(rows_of(&call)) : 0xffffffff;
                s.nonfinite_count = count_;
                s.nonfinite_row = row_;
                Plays::refuse(s, p.bad_index);
                open_ = p.behind + random_.below(20);
                s.write_open = open_ != 0;
                unit_ = Unit::READY;
            }
        }
        if (p.behind && ended_ && !failed_ && open_ <= p.last_open) {
            failed_ = true;
            port_fails(p.expected == LORA_ERR_ADDRESS, true);
        }
    }

    void one() {
        Slot &s = *slot_;
        const Case &it = cases_[at_];
        lora_unit_call call = call_of(it);
        Plan p = plan(it, call);
        tell();
        Plays::hold(s, call);
        s.unit_start = 1;
        running_ = true;
        started_ = ended_ = failed_ = told_ = told_next_ = false;
        for (uint32_t cycles = 0;; cycles++) {
            if (cycles > LIMIT) fail("case %zu: no end", at_);
            if (cycles && cycles == p.announce && at_ + 1 < cases_.size()) {
                announce(at_ + 1);
                told_next_ = true;
            }
            if (cycles) play(p, call);
            if (cycles == p.until && (p.how == How::ABORT || p.how == How::RESET))
                return end(p.how);
            s.result_ready = random_.once_in(2);
            s.eval();
            bool taken = s.result_valid && s.result_ready;
            if (taken) check(it, call, p);
            cycle();
            if (!taken) continue;
            running_ = false;
            told_ = told_next_;
            s.result_ready = 0;
            return;
        }
    }

    void end(How how) {
        Slot &s = *slot_;
        std::string name = how == How::RESET ? "resets" : "aborts";
        counts[name]++;
        counts[name + (unit_ == Unit::RUNS ? "_running" : ended_ ? "_ended" : "_before")]++;
        s.result_ready = random_.once_in(2);
        if (how == How::RESET) {
            quiet();
            open_ = 0;
            asked_unit_ = false;
            reset();
        } else {
            s.unit_abort = 1;
            cycle();
            s.unit_abort = 0;
        }
        running_ = told_ = false;
        s.result_ready = 0;
        for (uint32_t i = 0; i < 60; i++) {
            cycle();
            if (s.result_valid || s.command_valid) fail("case %zu: goes on behind its end", at_);
        }
    }

    void check(const Case &it, const lora_unit_call &call, const Plan &p) {
        Slot &s = *slot_;
        uint32_t expected = p.expected;
        bool good = expected == LORA_OK, starts = p.starts;
        counts["status_" + std::to_string(expected)]++;
        counts[starts ? "started" : "not_started"]++;
        if (started_ != starts)
            fail("case %zu: status %u expected, found %u; %sstarted", at_, expected,
                 s.result_status, started_ ? "" : "not ");
        if (s.result_status != expected ||
            s.result_state != (good ? uint32_t{LORA_UNIT_DONE} : uint32_t{LORA_UNIT_FAILED}))
            fail("case %zu: state %u, status %u; expected status %u", at_, s.result_state,
                 s.result_status, expected);
        uint32_t wanted = good && starts ? count_ : 0;
        uint32_t wanted_row = wanted ? step_row(&call, row_) : 0xffffffff;
        if (s.result_nonfinite_count != wanted || s.result_nonfinite_row != wanted_row)
            fail("case %zu: %u values not finite from row %d on, expected %u from %d", at_,
                 s.result_nonfinite_count, int(s.result_nonfinite_row), wanted, int(wanted_row));
        if (good && starts) counts[wanted ? "nonfinite" : "finite"]++;
        counts[Plays::kind(it.command)]++;
    }

    std::vector<Case> cases_;
    Random random_;
    VerilatedContext context_{};
    std::unique_ptr<Slot> slot_;
    size_t at_ = 0;
    Unit unit_ = Unit::CLEARS;
    uint32_t left_ = 0, open_ = 0, count_ = 0, row_ = 0;
    typename Plays::Asked asked_{};
    bool told_ = false, told_next_ = false, running_ = false, started_ = false;
    bool ended_ = false, failed_ = false, asked_unit_ = false;
};

#endif
