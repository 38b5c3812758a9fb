// The control's side of memory_port: accesses of the window and bursts of a list, and what must
// come back.
#ifndef LORA_TEST_CONTROL_SIDE_HPP
#define LORA_TEST_CONTROL_SIDE_HPP

#include "Vports_bench.h"

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>

// Words that nobody has written are their address, mixed.
class Words {
  public:
    uint32_t access(uint64_t address, uint32_t lanes, uint32_t data) {
        uint64_t place = address / 4;
        auto found = words_.find(place);
        uint32_t word = found == words_.end() ? uint32_t(place * 0x9e3779b97f4a7c15 >> 23)
                                              : found->second;
        if (!lanes) return word;
        for (uint32_t lane = 0; lane < 4; lane++)
            if (lanes >> lane & 1)
                word = (word & ~(0xffu << 8 * lane)) | (data & 0xffu << 8 * lane);
        words_[place] = word;
        return word;
    }

  private:
    std::map<uint64_t, uint32_t> words_;
};

class ControlSide {
  public:
    static constexpr uint64_t WRITTEN = 0x4'0000'0000; // the window writes there, 4 pages
    static constexpr uint64_t READ_ONLY = 0x8'0000'0000;

    ControlSide(Vports_bench &bench, Words &memory, uint32_t seed)
        : bench_(bench), memory_(memory), chance_(seed) {}

    uint64_t lines = 0, reads = 0, writes = 0, errors = 0;
    std::string wrong;
    bool gives = true;

    static bool bad(uint64_t line) { return line / 64 % 37 == 5; }
    bool quiet() const { return !asked_ && beats_.empty() && !list_ && !window_; }

    // Before an edge of the control's clock.
    void see() {
        if (bench_.rst) return forget();
        if (settles_ && --settles_ == 0) known_ = memory_;
        if (bench_.memory_answers) answer();
        if (bench_.r_valid && bench_.r_ready) line();
        if (bench_.memory_valid && bench_.memory_ready) window_taken();
        if (bench_.ar_valid && bench_.ar_ready) list_taken();
        if (!quiet() && ++waits_ > 20000) wrong = "an answer does not come";
    }

    // Behind it.
    void drive() {
        if (!window_ && !asked_ && gives && chance_() % 3 == 0) choose_window();
        bench_.memory_valid = window_;
        if (!list_ && gives && beats_.size() < 32 && chance_() % 4 == 0) choose_list();
        bench_.ar_valid = list_;
        bench_.r_ready = chance_() % 2;
    }

    void start() { known_ = memory_; }

  private:
    struct Beat {
        uint64_t address;
        bool last;
    };

    // What was written and is not there may come or not; then the memory says.
    void forget() {
        window_ = list_ = asked_ = write_failed_ = false;
        beats_.clear();
        settles_ = 2000;
        waits_ = 0;
    }

    void choose_window() {
        bool writes = chance_() % 2 && !settles_;
        uint64_t base = settles_ || chance_() % 4 == 0 ? READ_ONLY : WRITTEN;
        if (writes) base = WRITTEN;
        bench_.memory_address = base + chance_() % 0x1000 * 4;
        bench_.memory_write = writes ? static_cast<uint32_t>(1 + chance_() % 15) : 0;
        bench_.memory_stored = static_cast<uint32_t>(chance_());
        window_ = true;
    }

    void window_taken() {
        window_ = false;
        uint64_t address = bench_.memory_address, its_line = address & ~63ull;
        if (!bench_.memory_write) {
            asked_ = true;
            asked_line_ = its_line;
            return;
        }
        writes++;
        if (bad(its_line)) write_failed_ = true;
        else known_.access(address, bench_.memory_write, bench_.memory_stored);
    }

    void answer() {
        waits_ = 0;
        if (!asked_) {
            wrong = "the window has an answer that it did not ask for";
            return;
        }
        asked_ = false;
        reads++;
        bool fails = bad(asked_line_) || write_failed_;
        errors += fails;
        write_failed_ = false;
        if (bench_.memory_error != fails) wrong = "the window's error is wrong";
        for (uint32_t i = 0; i < 16 && !fails; i++)
            if (bench_.memory_line[i] != known_.access(asked_line_ + 4 * i, 0, 0))
                wrong = "the window read other words than were written";
    }

    void choose_list() {
        uint64_t first = chance_() % 4096, left = 64 - first % 64;
        uint32_t count = 1 + chance_() % 16;
        bench_.ar_line = READ_ONLY / 64 + first;
        bench_.ar_beats = (count < left ? count : left) - 1;
        list_ = true;
    }

    void list_taken() {
        for (uint32_t i = 0; i <= bench_.ar_beats; i++)
            beats_.push_back({(uint64_t(bench_.ar_line) + i) * 64, i == bench_.ar_beats});
        list_ = false;
    }

    void line() {
        waits_ = 0;
        lines++;
        if (beats_.empty()) {
            wrong = "a line that no burst has asked for";
            return;
        }
        Beat beat = beats_.front();
        beats_.pop_front();
        if (bench_.r_last != beat.last) wrong = "a burst has another number of lines";
        if (bench_.r_error != bad(beat.address)) wrong = "a line's error is wrong";
        for (uint32_t i = 0; i < 16; i++)
            if (bench_.r_data[i] != memory_.access(beat.address + 4 * i, 0, 0))
                wrong = "a line is not the one that was asked for";
    }

    Vports_bench &bench_;
    Words &memory_;
    Words known_; // as it must be, by the order of the control's accesses
    std::mt19937 chance_;
    std::deque<Beat> beats_;
    bool window_ = false, list_ = false, asked_ = false, write_failed_ = false;
    uint64_t asked_line_ = 0, waits_ = 0;
    uint32_t settles_ = 0;
};

#endif
