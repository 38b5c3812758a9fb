/* Memory behind a unit's ports that answers in any order and checks what a bus demands of a unit:
 * what is on offer stays as it is until it is taken, and behind an abort nothing new is offered. */
#ifndef LORA_RTL_CHECKED_PORTS_HPP
#define LORA_RTL_CHECKED_PORTS_HPP

#include <string>

#include "disturbed_memory.hpp"

struct Behavior {
    uint32_t latency = 1; /* cycles from a request to its line, at least 1 */
    uint32_t jitter = 0;  /* up to so many more, each its own */
    uint32_t busy = 0;    /* of 256 cycles a port is not ready */
};

template <class Unit> class CheckedPorts {
  public:
    CheckedPorts(Unit &unit, DisturbedMemory &memory, Behavior behavior, Random &random)
        : unit_(unit), memory_(memory), behavior_(behavior), random_(random) {}

    /* Before each rising edge. */
    void drive() {
        check_offers();
        unit_.read_ready = random_.below(256) >= behavior_.busy;
        unit_.write_ready = random_.below(256) >= behavior_.busy;
        if (unit_.read_valid && unit_.read_ready)
            asked_.push_back({cycle_ + behavior_.latency + random_.below(behavior_.jitter + 1),
                              unit_.read_line, static_cast<uint32_t>(unit_.read_tag),
                              unit_.read_bank});
        if (unit_.write_valid && unit_.write_ready) {
            NotedWrite offer = write_offer();
            memory_.write(offer.bank, offer.line, offer.bytes, offer.data.data());
        }
        read_left_ = unit_.read_valid && !unit_.read_ready;
        write_left_ = unit_.write_valid && !unit_.write_ready;
        read_seen_ = {0, unit_.read_line, static_cast<uint32_t>(unit_.read_tag), unit_.read_bank};
        if (write_left_) write_seen_ = write_offer();
        answer();
        cycle_++;
    }

    /* In this cycle, behind drive(). */
    bool read_left() const { return read_left_; }
    bool write_left() const { return write_left_; }
    size_t under_way() const { return asked_.size(); } /* reads without an answer */

    /* The unit sees an abort in this cycle: from the next one on it may offer what is left only,
     * and `others` at its port what they had on offer behind that. */
    void stop(uint32_t others = 0) {
        stopped_ = true;
        reads_behind_ = writes_behind_ = others;
    }
    /* The unit sees a reset in this cycle, and so does this memory. */
    void reset() {
        asked_.clear();
        stopped_ = true;
        reads_behind_ = writes_behind_ = 0;
        read_left_ = write_left_ = false;
        unit_.read_ready = random_.once_in(2);
        unit_.write_ready = random_.once_in(2);
        unit_.line_valid = random_.once_in(2);
        unit_.line_tag = static_cast<uint32_t>(random_.next());
    }

    const std::string &error() const { return error_; }

  private:
    struct Request {
        uint64_t due;
        uint32_t line;
        uint32_t tag;
        uint8_t bank;
    };

    void fail(const char *what) {
        if (error_.empty()) error_ = what;
    }

    NotedWrite write_offer() const {
        NotedWrite offer{unit_.write_bank, unit_.write_line, unit_.write_bytes, {}};
        const auto *data = reinterpret_cast<const uint8_t *>(&unit_.write_data[0]);
        for (uint32_t i = 0; i < LORA_LINE_BYTES; i++)
            if (offer.bytes >> i & 1) offer.data[i] = data[i];
        return offer;
    }

    void check_offers() {
        if (read_left_ && !(unit_.read_valid && unit_.read_bank == read_seen_.bank &&
                            unit_.read_line == read_seen_.line && unit_.read_tag == read_seen_.tag))
            fail("a read that was offered changes before it is taken");
        if (write_left_) {
            NotedWrite offer = write_offer();
            if (!unit_.write_valid || !offer.same_place(write_seen_) ||
                offer.data != write_seen_.data)
                fail("a write that was offered changes before it is taken");
        }
        if (stopped_ && unit_.read_valid && !read_left_ && !reads_behind_--)
            fail("a read begins behind an abort");
        if (stopped_ && unit_.write_valid && !write_left_ && !writes_behind_--)
            fail("a write begins behind an abort");
    }

    /* One of the lines that are due, in any order. */
    void answer() {
        size_t due = 0, chosen = 0;
        unit_.line_valid = 0;
        for (size_t i = 0; i < asked_.size(); i++)
            if (asked_[i].due <= cycle_ && random_.below(++due) == 0) chosen = i;
        if (due == 0) return;
        unit_.line_valid = 1;
        unit_.line_tag = asked_[chosen].tag;
        memory_.read(asked_[chosen].bank, asked_[chosen].line, &unit_.line_data[0]);
        asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(chosen));
    }

    Unit &unit_;
    DisturbedMemory &memory_;
    Behavior behavior_;
    Random &random_;
    std::vector<Request> asked_;
    Request read_seen_{};
    NotedWrite write_seen_{};
    std::string error_;
    uint64_t cycle_ = 0;
    bool read_left_ = false, write_left_ = false, stopped_ = false;
    uint32_t reads_behind_ = 0, writes_behind_ = 0;
};

#endif
