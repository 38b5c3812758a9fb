// What a simulated DMA unit's port leads to: banks with arenas. Reads are answered in any order; a
// write is done when it is taken, or some cycles later, as the memory is told to behave. What a bus
// demands of a unit is checked.
#ifndef DMA_MEMORY_HPP
#define DMA_MEMORY_HPP

#include "VDma.h"
#include "random.hpp"

#include "lora/abi.h"

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

constexpr uint32_t LINE = LORA_LINE_BYTES;

struct Arena {
    uint32_t bank;
    uint64_t offset, bytes;
};

// The bytes of all banks, and which of them there are.
struct Banks {
    std::map<uint32_t, std::vector<uint8_t>> bytes;
    std::vector<Arena> arenas; // the on-chip buffer's too, which need not be whole lines

    bool covers(uint32_t bank, uint64_t at) const {
        for (const Arena &arena : arenas)
            if (arena.bank == bank && at >= arena.offset && at - arena.offset < arena.bytes)
                return true;
        return false;
    }
};

struct Write {
    uint32_t bank, line;
    uint64_t strobes;
    std::array<uint8_t, LINE> data; // 0 where a byte is not written

    bool operator==(const Write &other) const {
        return bank == other.bank && line == other.line && strobes == other.strobes &&
               data == other.data;
    }
};

struct Behavior {
    uint32_t latency, jitter; // cycles from a request to its line
    uint32_t busy;            // of 256 cycles a port is not ready
    bool late_writes;         // they are done some cycles after they were taken
    uint32_t errors;          // one of so many answers is an error; 0: none

    static Behavior any(Random &random) {
        return {1 + random.below(random.once_in(2) ? 4 : 40),
                random.once_in(3) ? 0 : random.below(40), random.once_in(3) ? random.below(200) : 0,
                random.once_in(2), 0};
    }
};

class Memory {
  public:
    Memory(VDma &unit, Banks &banks, Behavior behavior, Random &random)
        : unit_(unit), banks_(banks), behavior_(behavior), random_(random) {}

    std::vector<Write> writes; // as they were taken
    uint64_t errors = 0;       // that were told

    // Before each rising edge.
    void drive() {
        check_offers();
        unit_.read_ready = random_.below(256) >= behavior_.busy;
        unit_.write_ready = random_.below(256) >= behavior_.busy;
        if (unit_.read_valid && unit_.read_ready) ask();
        unit_.write_error = 0;
        finish_writes();
        if (unit_.write_valid && unit_.write_ready) take_write();
        read_left_ = unit_.read_valid && !unit_.read_ready;
        write_left_ = unit_.write_valid && !unit_.write_ready;
        read_seen_ = {0, unit_.read_bank, unit_.read_line, unit_.read_tag};
        if (write_left_) write_seen_ = offer();
        answer();
        unit_.write_open = !late_.empty();
        cycle_++;
    }
    // The unit sees an abort in this cycle: from the next one on it may offer what is left only.
    void stop() { stopped_ = true; }
    void go() { stopped_ = false; }
    void reset() {
        asked_.clear();
        for (const Late &late : late_) apply(late.write);
        late_.clear();
        finishes_ = false;
        read_left_ = write_left_ = false;
        unit_.read_ready = random_.once_in(2);
        unit_.write_ready = random_.once_in(2);
        unit_.line_valid = random_.once_in(2);
        unit_.line_tag = static_cast<uint8_t>(random_.below(128));
        unit_.line_error = unit_.write_error = unit_.write_open = 0;
    }
    bool idle() const {
        return asked_.empty() && (late_.empty() || (finishes_ && late_.size() == 1));
    }
    std::string what() const {
        return std::to_string(asked_.size()) + " reads, " + std::to_string(late_.size()) +
               " writes";
    }
    bool reads() const { return !asked_.empty(); }
    bool read_left() const { return read_left_; }
    bool write_left() const { return write_left_; }

  private:
    struct Asked {
        uint64_t due;
        uint32_t bank, line, tag;
    };
    struct Late {
        uint64_t due;
        Write write;
    };

    Write offer() const {
        Write write{unit_.write_bank, unit_.write_line, unit_.write_bytes, {}};
        const auto *data = reinterpret_cast<const uint8_t *>(&unit_.write_data[0]);
        for (uint32_t i = 0; i < LINE; i++)
            if (write.strobes >> i & 1) write.data[i] = data[i];
        return write;
    }

    void check_offers() {
        if (read_left_ && !(unit_.read_valid && unit_.read_bank == read_seen_.bank &&
                            unit_.read_line == read_seen_.line && unit_.read_tag == read_seen_.tag))
            throw std::runtime_error("a read that was offered changes before it is taken");
        if (write_left_ && !(unit_.write_valid && offer() == write_seen_))
            throw std::runtime_error("a write that was offered changes before it is taken");
        if (stopped_ && unit_.read_valid && !read_left_)
            throw std::runtime_error("a read begins behind an abort");
        if (stopped_ && unit_.write_valid && !write_left_)
            throw std::runtime_error("a write begins behind an abort");
    }

    void ask() {
        for (const Asked &asked : asked_)
            if (asked.tag == unit_.read_tag) throw std::runtime_error("a tag is used twice");
        asked_.push_back({cycle_ + behavior_.latency + random_.below(behavior_.jitter + 1),
                          unit_.read_bank, unit_.read_line, unit_.read_tag});
    }

    bool fails() { return behavior_.errors && random_.once_in(behavior_.errors) && ++errors; }

    void take_write() {
        Write write = offer();
        for (uint32_t i = 0; i < LINE; i++)
            if (write.strobes >> i & 1 &&
                !banks_.covers(write.bank, uint64_t{write.line} * LINE + i))
                throw std::runtime_error("a write outside of the arenas: bank " +
                                         std::to_string(write.bank) + " line " +
                                         std::to_string(write.line));
        if (write.strobes == 0) throw std::runtime_error("a write of nothing");
        writes.push_back(write);
        if (behavior_.late_writes) late_.push_back({cycle_ + 1 + random_.below(30), write});
        else apply(write);
    }

    void apply(const Write &write) {
        auto &bytes = banks_.bytes.at(write.bank);
        for (uint32_t i = 0; i < LINE; i++)
            if (write.strobes >> i & 1) bytes[size_t{write.line} * LINE + i] = write.data[i];
    }

    // In order. The error of a write comes while it is open.
    void finish_writes() {
        if (finishes_) late_.pop_front();
        finishes_ = !late_.empty() && late_.front().due <= cycle_;
        if (!finishes_) return;
        unit_.write_error = fails();
        apply(late_.front().write);
    }

    // One of the lines that are due, in any order.
    void answer() {
        size_t due = 0, chosen = 0;
        unit_.line_valid = unit_.line_error = 0;
        for (size_t i = 0; i < asked_.size(); i++)
            if (asked_[i].due <= cycle_ && random_.below(++due) == 0) chosen = i;
        if (due == 0) return;
        const Asked &asked = asked_[chosen];
        unit_.line_valid = 1;
        unit_.line_tag = static_cast<uint8_t>(asked.tag);
        if (!banks_.covers(asked.bank, uint64_t{asked.line} * LINE))
            throw std::runtime_error("a read outside of the arenas: bank " +
                                     std::to_string(asked.bank) + " line " +
                                     std::to_string(asked.line));
        if (fails()) {
            unit_.line_error = 1;
            for (int word = 0; word < 16; word++)
                unit_.line_data[word] = static_cast<uint32_t>(random_.next());
        } else {
            std::memcpy(&unit_.line_data[0],
                        &banks_.bytes.at(asked.bank)[size_t{asked.line} * LINE], LINE);
        }
        asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(chosen));
    }

    VDma &unit_;
    Banks &banks_;
    Behavior behavior_;
    Random &random_;
    std::vector<Asked> asked_;
    std::deque<Late> late_;
    Asked read_seen_{};
    Write write_seen_{};
    uint64_t cycle_ = 0;
    bool read_left_ = false, write_left_ = false, stopped_ = false, finishes_ = false;
};

#endif
