// Memory of a card's attention units: a port each to the pages' banks. Answers come in order when
// their time has come; where times are by chance, in any order. One waits until it is taken.
#ifndef LORA_SIM_KV_MEMORY_HPP
#define LORA_SIM_KV_MEMORY_HPP

#include "VCard.h"
#include "banks.hpp"

#include <deque>
#include <vector>

class KvMemory {
  public:
    KvMemory(const CardMemory &memory, Timing &timing, Banks &banks)
        : memory_(memory), timing_(timing), banks_(banks),
          ports_(CARD_ATTENTIONS > 1 ? CARD_ATTENTIONS : 0) {}

    void drive(VCard &c, uint64_t now) {
        uint32_t ready = 0;
        for (uint32_t i = 0; i < ports_.size(); i++) {
            if (timing_.unless(8)) ready |= 1u << i;
            if (!(c.kv_line_valid >> i & 1)) offer(c, i, now);
        }
        c.kv_read_ready = ready;
    }

    void see(VCard &c, uint64_t now) {
        for (uint32_t i = 0; i < ports_.size(); i++) {
            if (c.kv_line_valid & c.kv_line_ready & 1u << i) taken_ |= 1u << i;
            if (!(c.kv_read_valid & c.kv_read_ready & 1u << i)) continue;
            CardMemory::Place place = memory_.place(c.kv_read_line[i] * LORA_LINE_BYTES);
            uint64_t due = banks_.of(place).take(now) + timing_.config.latency;
            ports_[i].push_back({place, due, c.kv_read_tag[i]});
        }
    }

    // Behind the clock's edge: what was taken is on offer no more.
    void after(VCard &c) {
        c.kv_line_valid &= ~taken_;
        taken_ = 0;
    }

  private:
    struct Request {
        CardMemory::Place place;
        uint64_t due;
        uint16_t tag;
    };

    void offer(VCard &c, uint32_t i, uint64_t now) {
        std::deque<Request> &from = ports_[i];
        auto at = from.begin();
        if (from.empty()) return;
        if (timing_.random()) at += timing_.below(static_cast<uint32_t>(from.size()));
        if (timing_.random() ? !timing_.unless(4) : at->due > now) return;
        bool read = memory_.read_line(at->place, &c.kv_line_data[i][0]);
        bool error = !read || memory_.calls().unit_fails();
        c.kv_line_tag[i] = at->tag;
        c.kv_line_error = (c.kv_line_error & ~(1u << i)) | (error ? 1u << i : 0);
        c.kv_line_valid |= 1u << i;
        from.erase(at);
    }

    const CardMemory &memory_;
    Timing &timing_;
    Banks &banks_;
    std::vector<std::deque<Request>> ports_; // an attention unit's
    uint32_t taken_ = 0;
};

#endif
