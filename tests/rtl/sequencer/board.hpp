// Around the sequencer: the control bank behind its read port, and units that take their time.
#ifndef TEST_SEQUENCER_BOARD_HPP
#define TEST_SEQUENCER_BOARD_HPP

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>

#include "VSequencer.h"
#include "lists.hpp"

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

constexpr uint32_t LINES_A_PAGE = 4096 / LORA_LINE_BYTES;

// The read port: bursts come after a latency, with gaps. Checks what a bus demands of its master.
class Memory {
  public:
    Memory(Random &random, uint64_t base, const List &list)
        : random_(random), base_(base), lines_(list.commands) {
        latency_ = random.once_in(4) ? 1 : random.between(10, 120);
        gaps_ = random.below(3) * 60;
    }

    void flip_bit(uint32_t command, uint32_t bit) {
        reinterpret_cast<uint8_t *>(&lines_[command])[bit / 8] ^= static_cast<uint8_t>(1
                                                                                       << bit % 8);
    }
    void set_latency(uint32_t cycles) { latency_ = cycles, gaps_ = 0; }
    void fail_at(uint32_t command) { error_at_ = command; }
    const lora_command *lines() const { return lines_.data(); }
    bool busy() const { return left_ > 0; }
    // Cycles without any move after which none will come: those of a read, or of a look through all
    // chunks of the window, and some more.
    uint32_t quiet() const { return latency_ + 60; }

    void drive(VSequencer &s, uint64_t cycle) {
        if (was_valid_ && !was_taken_ &&
            !(s.ar_valid && s.ar_line == line_seen_ && s.ar_beats == beats_seen_))
            fail("a read that was offered changed before it was taken");
        s.ar_ready = left_ == 0 && random_.below(256) >= gaps_;
        s.r_valid = left_ > 0 && cycle >= due_ && (held_ || random_.below(256) >= gaps_);
        held_ = s.r_valid;
        if (s.r_valid) {
            std::memcpy(&s.r_data[0], &lines_[at_], LORA_LINE_BYTES);
            s.r_last = left_ == 1;
            s.r_error = at_ == error_at_;
        }
    }

    // At the clock's edge, with what was seen before it.
    void edge(const VSequencer &s, uint64_t cycle) {
        was_valid_ = s.ar_valid;
        was_taken_ = s.ar_valid && s.ar_ready;
        line_seen_ = s.ar_line;
        beats_seen_ = s.ar_beats;
        if (s.r_valid && s.r_ready) {
            at_++;
            left_--;
            held_ = false;
        }
        if (!was_taken_) return;
        uint64_t first = s.ar_line - base_, count = s.ar_beats + 1u;
        if (s.ar_line < base_ || first + count > lines_.size()) fail("a read beyond the list");
        if (s.ar_line % LINES_A_PAGE + count > LINES_A_PAGE) fail("a burst crosses 4 KiB");
        at_ = static_cast<uint32_t>(first);
        left_ = static_cast<uint32_t>(count);
        due_ = cycle + latency_;
    }

    void reset() { was_valid_ = held_ = false, left_ = 0; }

  private:
    Random &random_;
    uint64_t base_, due_ = 0, line_seen_ = 0;
    std::vector<lora_command> lines_;
    uint32_t latency_, gaps_, left_ = 0, at_ = 0, beats_seen_ = 0, error_at_ = ~0u;
    bool was_valid_ = false, was_taken_ = false, held_ = false;
};

struct Fault { // of the command `index`: another result, or none, then neither of `also`
    uint32_t index = ~0u, also = ~0u, state = LORA_UNIT_DONE, status = 0;
    bool stuck = false;
};

struct Told {
    lora_command command{};
    uint32_t rows = 0;
};

// A unit is told commands, MPU_AHEAD of them or one, started, and says in the end what came of it.
struct Unit {
    bool running = false, ready = false, stuck = false;
    std::deque<Told> told;
    lora_command command{};
    uint32_t rows = 0, started = 0, state = 0;
    uint64_t due = 0, idle_at = 0;
    hal_unit_result result{};
};

class Units {
  public:
    Units(Random &random, const test_run &run, Fault fault)
        : random_(random), run_(run), fault_(fault) {
        static const uint32_t slow[] = {1, 4, 50, 400};
        for (uint32_t u = 0; u < LORA_UNITS; u++) speed_[u] = slow[random.below(4)];
    }

    Unit unit[LORA_UNITS];
    uint32_t groups[LORA_SEGMENTS] = {};
    const uint32_t *times = nullptr; // fixed ones, by unit
    std::vector<lora_command> begun; // all that were started
    size_t most_told = 0;            // commands that one had been told and that did not start

    bool idle() const {
        for (const Unit &u : unit)
            if (u.running || !u.told.empty()) return false;
        return true;
    }

    void drive(VSequencer &s, uint64_t cycle, bool release) {
        s.result_valid = 0;
        s.unit_idle = 1;
        for (uint32_t u = 1; u < LORA_UNITS; u++) {
            Unit &it = unit[u];
            it.ready = it.running && !it.stuck && cycle >= it.due;
            if (it.ready && release) s.result_valid |= 1u << u;
            if (!it.running && it.told.empty() && cycle >= it.idle_at) s.unit_idle |= 1u << u;
            give(s, u, it);
        }
        s.segments = 0;
        for (uint32_t i = 0; i < LORA_SEGMENTS; i++) s.segments |= groups[i] << 3 * i;
    }

    // Row groups that are complete: one more of a segment now and then. True where they changed.
    bool advance_segments() {
        Unit &router = unit[LORA_UNIT_ROUTER];
        if (!router.running || router.stuck) return false;
        uint32_t s = random_.below(LORA_SEGMENTS);
        if (groups[s] == 7) return false;
        groups[s]++;
        return true;
    }

    void edge(const VSequencer &s, uint64_t cycle) {
        for (uint32_t u = 1; u < LORA_UNITS; u++) {
            Unit &it = unit[u];
            if (s.result_valid >> u & 1 && s.result_ready >> u & 1) it.running = false;
            if (s.unit_abort) {
                it.idle_at = cycle + random_.below(40);
                it.running = false;
                it.told.clear();
            }
            if (s.unit_start >> u & 1) start(u, it, cycle);
            if (s.unit_announce >> u & 1) {
                if (it.told.size() == (u == LORA_UNIT_MPU ? size_t{MPU_AHEAD} : 1))
                    fail("unit %u was told one command too many", u);
                Told one;
                std::memcpy(&one.command, &s.unit_line[0], sizeof one.command);
                one.rows = s.unit_rows;
                it.told.push_back(one);
                most_told = std::max<size_t>(most_told, it.told.size());
            }
        }
    }

    void reset() {
        for (Unit &it : unit) it.running = false, it.told.clear(), it.idle_at = 0;
    }

  private:
    void start(uint32_t u, Unit &it, uint64_t cycle) {
        if (it.running || it.told.empty())
            fail("unit %u: a start, but it runs or was told nothing", u);
        it.running = true;
        it.command = it.told.front().command;
        it.rows = it.told.front().rows;
        it.told.pop_front();
        it.started++;
        begun.push_back(it.command);
        it.due = cycle + (times ? times[u] : random_.below(speed_[u]));
        uint32_t index = it.command.body[12];
        it.stuck = fault_.stuck && (index == fault_.index || index == fault_.also);
        it.state = LORA_UNIT_DONE;
        it.result = {};
        it.result.nonfinite_row = it.result.port = static_cast<uint32_t>(random_.engine());
        it.result.port &= 0xff;
        if (!times && random_.once_in(10)) it.result.nonfinite_count = random_.between(1, 1u << 30);
        if (u == LORA_UNIT_ROUTER) {
            it.result.frames_sent = random_.below(1000);
            it.result.frames_received = random_.below(1000);
            it.result.frames_dropped = random_.below(1000);
            std::memset(groups, 0, sizeof groups);
        }
        if (index == fault_.index && !fault_.stuck) {
            it.state = fault_.state;
            it.result.status = fault_.status;
        }
    }

    void give(VSequencer &s, uint32_t u, const Unit &it) {
        uint64_t status = s.result_status & ~(0xffull << 8 * u);
        s.result_status = status | static_cast<uint64_t>(it.result.status & 0xff) << 8 * u;
        s.result_state = static_cast<uint16_t>((s.result_state & ~(3u << 2 * u)) | it.state
                                                                                       << 2 * u);
        s.result_nonfinite_count[u] = it.result.nonfinite_count;
        s.result_nonfinite_row[u] = it.result.nonfinite_row;
        uint64_t port = s.result_port & ~(0xffull << 8 * u);
        s.result_port = port | static_cast<uint64_t>(it.result.port) << 8 * u;
        if (u != LORA_UNIT_ROUTER) return;
        s.result_frames[0] = it.result.frames_sent;
        s.result_frames[1] = it.result.frames_received;
        s.result_frames[2] = it.result.frames_dropped;
    }

    Random &random_;
    const test_run &run_;
    Fault fault_;
    uint32_t speed_[LORA_UNITS];
};

#endif
