// Memory of a card's channels: a port a bank, answered in the order of its requests. A bank that is
// busy takes none; what the units ask of it goes by the same pace.
#ifndef LORA_SIM_CHANNEL_MEMORY_HPP
#define LORA_SIM_CHANNEL_MEMORY_HPP

#include "VCard.h"
#include "banks.hpp"

#include <deque>
#include <vector>

class ChannelMemory {
  public:
    ChannelMemory(const CardMemory &memory, Timing &timing, Banks &banks)
        : memory_(memory), timing_(timing), banks_(banks), reads_(CARD_CHANNELS) {}

    void drive(VCard &c, uint64_t now) {
        uint32_t ready = 0, valid = 0, error = 0;
        for (uint32_t i = 0; i < reads_.size(); i++) {
            if (banks_[i].free(now) && timing_.unless(8)) ready |= 1u << i;
            if (reads_[i].empty()) continue;
            const Request &it = reads_[i].front();
            if (timing_.random() ? !timing_.unless(4) : it.due > now) continue;
            valid |= 1u << i;
            bool read = memory_.read_line(it.place, &c.channel_line_data[i][0]);
            if (!read || memory_.calls().unit_fails()) error |= 1u << i;
            reads_[i].pop_front();
        }
        c.channel_read_ready = ready;
        c.channel_line_valid = valid;
        c.channel_line_error = error;
    }

    void see(const VCard &c, uint64_t now) {
        uint32_t taken = c.channel_read_valid & c.channel_read_ready;
        for (uint32_t i = 0; i < reads_.size(); i++) {
            if (!(taken >> i & 1)) continue;
            CardMemory::Place place = memory_.place(c.channel_read_line[i] * LORA_LINE_BYTES);
            reads_[i].push_back({place, banks_.of(place).take(now) + timing_.config.latency});
        }
    }

  private:
    struct Request {
        CardMemory::Place place;
        uint64_t due;
    };

    const CardMemory &memory_;
    Timing &timing_;
    Banks &banks_;
    std::vector<std::deque<Request>> reads_; // a channel's
};

#endif
