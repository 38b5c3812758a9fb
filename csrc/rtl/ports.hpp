/* Memory behind a unit's ports: requests are answered after a latency, ports are busy at times. The
 * unit's own names are used: read_valid, read_ready, line_valid, write_valid and so on. */
#ifndef LORA_RTL_PORTS_HPP
#define LORA_RTL_PORTS_HPP

#include <cstdint>
#include <deque>

#include "board_memory.hpp"

struct MemoryTiming {
    uint32_t latency = 1; /* cycles from a request to its line, at least 1 */
    uint32_t busy = 0;    /* of 256 cycles a port is not ready */
};

template <class Unit> class Ports {
  public:
    Ports(Unit &unit, BoardMemory &memory, MemoryTiming timing)
        : unit_(unit), memory_(memory), timing_(timing) {}

    /* Before each rising edge: takes what the unit offers, gives the lines that are due. */
    void drive(uint64_t cycle) {
        unit_.read_ready = is_free();
        unit_.write_ready = is_free();
        if (unit_.read_valid && unit_.read_ready)
            under_way_.push_back({cycle + timing_.latency, unit_.read_line,
                                  static_cast<uint32_t>(unit_.read_tag), unit_.read_bank});
        if (unit_.write_valid && unit_.write_ready)
            memory_.write(unit_.write_bank, unit_.write_line, unit_.write_bytes,
                          reinterpret_cast<const uint8_t *>(&unit_.write_data[0]));
        unit_.line_valid = !under_way_.empty() && under_way_.front().due <= cycle;
        if (!unit_.line_valid) return;
        const Request &due = under_way_.front();
        unit_.line_tag = due.tag;
        memory_.read(due.bank, due.line, &unit_.line_data[0]);
        under_way_.pop_front();
    }

  private:
    struct Request {
        uint64_t due;
        uint32_t line;
        uint32_t tag;
        uint8_t bank;
    };

    bool is_free() {
        if (timing_.busy == 0) return true;
        random_ = random_ * 1664525u + 1013904223u;
        return (random_ >> 24) >= timing_.busy;
    }

    Unit &unit_;
    BoardMemory &memory_;
    MemoryTiming timing_;
    std::deque<Request> under_way_;
    uint32_t random_ = 1;
};

#endif
