// Memory of a card's units by lines: a request is taken each cycle, and answered when its time has
// come, lines of banks in order, and so those of the buffer; where times are by chance, in any
// order. Writes are there when they are answered.
#ifndef LORA_SIM_LINE_MEMORY_HPP
#define LORA_SIM_LINE_MEMORY_HPP

#include "VCard.h"
#include "banks.hpp"

#include <deque>
#include <iterator>

class LineMemory {
  public:
    LineMemory(const CardMemory &memory, Timing &timing, Banks &banks)
        : memory_(memory), timing_(timing), banks_(banks) {}

    void drive(VCard &c, uint64_t now) {
        c.lines_read_ready = timing_.unless(8);
        c.lines_write_ready = timing_.unless(8);
        c.lines_line_valid = answers(reads_, now);
        c.lines_written = answers(writes_, now);
        c.lines_line_error = c.lines_written_error = 0;
        if (c.lines_line_valid) {
            Request it = next(reads_);
            c.lines_line_tag = it.number;
            bool read = memory_.read_line(it.place, &c.lines_line_data[0]);
            c.lines_line_error = !read || memory_.calls().unit_fails();
        }
        if (!c.lines_written) return;
        Request it = next(writes_);
        c.lines_written_id = static_cast<uint8_t>(it.number);
        c.lines_written_error = !memory_.write_line(it.place, it.data, it.bytes);
    }

    void see(const VCard &c, uint64_t now) {
        if (c.lines_read_valid && c.lines_read_ready)
            add(reads_, c.lines_read_onchip, c.lines_read_line, c.lines_read_tag, now);
        if (!c.lines_write_valid || !c.lines_write_ready) return;
        Request &it = add(writes_, c.lines_write_onchip, c.lines_write_line, c.lines_write_id, now);
        it.bytes = c.lines_write_bytes;
        std::memcpy(it.data, &c.lines_write_data[0], LORA_LINE_BYTES);
    }

  private:
    struct Request {
        CardMemory::Place place;
        uint32_t number;
        uint64_t due, bytes;
        uint8_t data[LORA_LINE_BYTES];
    };

    bool answers(const std::deque<Request> &from, uint64_t now) {
        if (from.empty()) return false;
        return timing_.random() ? timing_.unless(4) : from.front().due <= now;
    }

    Request next(std::deque<Request> &from) {
        auto at = from.begin();
        if (timing_.random()) at += timing_.below(static_cast<uint32_t>(from.size()));
        Request found = *at;
        from.erase(at);
        return found;
    }

    Request &add(std::deque<Request> &to, bool onchip, uint64_t line, uint32_t number,
                 uint64_t now) {
        uint64_t address = line * LORA_LINE_BYTES;
        Request it = {};
        it.place = onchip ? CardMemory::onchip(address) : memory_.place(address);
        it.number = number;
        if (onchip) it.due = now + timing_.config.onchip;
        else it.due = banks_.of(it.place).take(now) + timing_.config.latency;
        auto at = to.end();
        while (!timing_.random() && at != to.begin() && std::prev(at)->due > it.due) --at;
        return *to.insert(at, it);
    }

    const CardMemory &memory_;
    Timing &timing_;
    Banks &banks_;
    std::deque<Request> reads_, writes_;
};

#endif
