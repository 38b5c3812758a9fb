// What lies around a simulated Router: its on-chip buffer, which answers in any order and checks
// what a bus demands, and cables with room, latency and gaps of their own.
#ifndef ROUTER_LINKS_HPP
#define ROUTER_LINKS_HPP

#include "VRouter.h"
#include "random.hpp"

#include "lora/abi.h"

#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

constexpr uint32_t LINE = LORA_LINE_BYTES;
using Frame = std::vector<uint8_t>;

inline lora_frame header_of(const Frame &frame) {
    lora_frame header;
    std::memcpy(&header, frame.data(), sizeof header);
    return header;
}

struct Beat {
    uint64_t due;
    uint8_t data[LINE];
    uint64_t keep;
    bool last;
};

// One way of a cable.
class Cable {
  public:
    Cable(Random &random, std::vector<Frame> *seen)
        : random_(random), seen_(seen), latency_(random.below(40)), room_(1 + random.below(80)),
          gaps_(random.below(3) ? random.below(200) : 0) {}

    void plain(uint32_t latency) { // as fast as the Router
        latency_ = latency;
        room_ = latency + 8;
        gaps_ = 0;
    }
    void close(bool closed) { closed_ = closed; } // it takes nothing
    bool ready() { return !closed_ && beats_.size() < room_ && random_.below(256) >= gaps_; }

    void push(const Beat &beat, uint64_t cycle) {
        beats_.push_back(beat);
        beats_.back().due = cycle + latency_;
        uint32_t bytes = 0;
        while (bytes < LINE && beat.keep >> bytes & 1) bytes++;
        if (bytes < LINE && beat.keep >> bytes) throw std::runtime_error("TKEEP has a hole");
        if (!beat.last && bytes < LINE) throw std::runtime_error("TKEEP ends before TLAST");
        frame_.insert(frame_.end(), beat.data, beat.data + bytes);
        if (!beat.last) return;
        if (seen_) seen_->push_back(frame_);
        frame_.clear();
    }

    // Frames that a test sends.
    void put(const Frame &frame, uint64_t cycle) {
        for (size_t at = 0; at < frame.size(); at += LINE) {
            size_t bytes = std::min<size_t>(LINE, frame.size() - at);
            Beat beat{cycle + random_.below(30), {}, ~0ull, at + LINE >= frame.size()};
            for (auto &byte : beat.data) byte = static_cast<uint8_t>(random_.next());
            std::memcpy(beat.data, &frame[at], bytes);
            if (bytes < LINE) beat.keep = (1ull << bytes) - 1;
            beats_.push_back(beat);
        }
    }

    bool offers(uint64_t cycle) {
        if (!offered_)
            offered_ = !beats_.empty() && beats_.front().due <= cycle &&
                       random_.below(256) >= gaps_;
        return offered_;
    }
    const Beat &front() const { return beats_.front(); }
    void pop() {
        beats_.pop_front();
        offered_ = false;
    }
    bool empty() const { return beats_.empty(); }
    // The links are reset: what was on the way is lost.
    void reset() {
        beats_.clear();
        frame_.clear();
        offered_ = false;
    }

  private:
    Random &random_;
    std::vector<Frame> *seen_;
    std::deque<Beat> beats_;
    Frame frame_;
    uint32_t latency_, room_, gaps_;
    bool offered_ = false, closed_ = false;
};

class Buffer {
  public:
    Buffer(VRouter &unit, std::vector<uint8_t> &bytes, Random &random)
        : unit_(unit), bytes_(bytes), random_(random), latency_(1 + random.below(30)),
          busy_(random.below(3) ? random.below(160) : 0) {}

    // Before each rising edge; `stopped`: behind an abort.
    void drive(uint64_t cycle) {
        check();
        unit_.read_ready = random_.below(256) >= busy_;
        unit_.write_ready = random_.below(256) >= busy_;
        if (unit_.read_valid && unit_.read_ready) {
            asked_.push_back(
                {cycle + 1 + random_.below(latency_), unit_.read_line, unit_.read_tag});
            moves_++;
            if (asked_.size() > 16) throw std::runtime_error("more reads than tags");
        }
        if (unit_.write_valid && unit_.write_ready) {
            for (uint32_t i = 0; i < LINE; i++)
                if (unit_.write_bytes >> i & 1) at(unit_.write_line, i) = data()[i];
            moves_++;
        }
        read_left_ = unit_.read_valid && !unit_.read_ready;
        write_left_ = unit_.write_valid && !unit_.write_ready;
        keep();
        answer(cycle);
    }
    void reset() {
        asked_.clear();
        read_left_ = write_left_ = false;
        unit_.line_valid = random_.once_in(2);
    }
    void plain() { // a line each way a cycle
        latency_ = 1;
        busy_ = 0;
    }
    void stop() { stopped_ = true; }
    void go() { stopped_ = false; }
    bool idle() const { return asked_.empty(); }
    uint64_t moves() const { return moves_; } // reads and writes

  private:
    struct Asked {
        uint64_t due;
        uint32_t line;
        uint8_t tag;
    };

    const uint8_t *data() const { return reinterpret_cast<const uint8_t *>(&unit_.write_data[0]); }

    uint8_t &at(uint32_t line, uint32_t byte) {
        size_t place = static_cast<size_t>(line) * LINE + byte;
        if (place >= bytes_.size()) throw std::runtime_error("a write beyond the on-chip buffer");
        return bytes_[place];
    }

    void keep() {
        read_line_ = unit_.read_line;
        read_tag_ = unit_.read_tag;
        write_line_ = unit_.write_line;
        write_bytes_ = unit_.write_bytes;
        if (write_left_) std::memcpy(write_data_, data(), LINE);
    }

    void check() {
        if (unit_.read_valid && unit_.read_bank != LORA_BANK_ONCHIP)
            throw std::runtime_error("a read of another bank");
        if (read_left_ &&
            !(unit_.read_valid && unit_.read_line == read_line_ && unit_.read_tag == read_tag_))
            throw std::runtime_error("a read that was offered changes before it is taken");
        if (write_left_ && !(unit_.write_valid && unit_.write_line == write_line_ &&
                             unit_.write_bytes == write_bytes_ && same_data()))
            throw std::runtime_error("a write that was offered changes before it is taken");
        if (stopped_ && ((unit_.read_valid && !read_left_) || (unit_.write_valid && !write_left_)))
            throw std::runtime_error("the memory port is used behind an abort");
    }

    bool same_data() const {
        for (uint32_t i = 0; i < LINE; i++)
            if ((write_bytes_ >> i & 1) && data()[i] != write_data_[i]) return false;
        return true;
    }

    // One of the lines that are due, in any order.
    void answer(uint64_t cycle) {
        size_t due = 0, chosen = 0;
        for (size_t i = 0; i < asked_.size(); i++)
            if (asked_[i].due <= cycle && random_.below(++due) == 0) chosen = i;
        unit_.line_valid = due > 0;
        if (due == 0) return;
        unit_.line_tag = asked_[chosen].tag;
        size_t place = static_cast<size_t>(asked_[chosen].line) * LINE;
        std::memset(&unit_.line_data[0], 0xa5, LINE);
        if (place >= bytes_.size()) throw std::runtime_error("a read beyond the on-chip buffer");
        std::memcpy(&unit_.line_data[0], &bytes_[place],
                    std::min<size_t>(LINE, bytes_.size() - place));
        asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(chosen));
    }

    VRouter &unit_;
    std::vector<uint8_t> &bytes_;
    Random &random_;
    std::vector<Asked> asked_;
    uint32_t latency_, busy_, read_line_ = 0, write_line_ = 0;
    uint64_t write_bytes_ = 0, moves_ = 0;
    uint8_t read_tag_ = 0, write_data_[LINE] = {};
    bool read_left_ = false, write_left_ = false, stopped_ = false;
};

#endif
