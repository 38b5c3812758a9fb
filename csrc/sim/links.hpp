// A card's links: frames between its streams and the emulated board's ports, whose faults they
// suffer. Transfers keep to the link's rate, and a frame arrives a link's latency after its end,
// when all of it is there: its lines come one a cycle. Boards exchange frames between slices.
#ifndef LORA_SIM_LINKS_HPP
#define LORA_SIM_LINKS_HPP

#include "VCard.h"
#include "timing.hpp"

#include <cstring>
#include <deque>
#include <vector>

class Links {
    enum : uint32_t { BEAT = 64, BEAT_WORDS = BEAT / 4, MOST_TAKEN = 8 };

  public:
    explicit Links(Timing &timing) : timing_(timing) {
        for (Port &port : ports_) port.out = Pace(timing.random() ? 0 : timing.config.beat_spacing);
    }

    // Before a clock edge: what comes in, and whether there is room for what leaves.
    void drive(VCard &c, uint64_t now) {
        c.link_up = c.rx_valid = c.rx_last = c.tx_ready = 0;
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            Port &port = ports_[p];
            if (!port.up) continue;
            c.link_up |= static_cast<uint8_t>(1u << p);
            if (begins(port, now)) offer(c, p);
            if (!port.out.free(now) || (port.sent.empty() && !timing_.unless(4))) continue;
            if (!port.sent.empty() || port.room > 1) c.tx_ready |= static_cast<uint8_t>(1u << p);
        }
    }

    // The last room of the far end is poison's. Whether tx_ready has changed.
    bool let_poison(VCard &c, uint64_t now) {
        bool any = false;
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            const Port &port = ports_[p];
            bool last = port.up && port.room == 1 && port.sent.empty() && port.out.free(now);
            if (!last || !(c.tx_valid >> p & 1) || !poison(c, p)) continue;
            c.tx_ready |= static_cast<uint8_t>(1u << p);
            any = true;
        }
        return any;
    }

    // What this edge takes.
    void see(const VCard &c, uint64_t now) {
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            Port &port = ports_[p];
            if (c.rx_valid >> p & c.rx_ready >> p & 1) take_beat(port);
            if (c.tx_valid >> p & c.tx_ready >> p & 1) send_beat(port, c, p, now);
        }
    }

    // Between slices.
    void send(const lora_board_calls &calls) {
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            for (const Frame &frame : ports_[p].leaving)
                calls.port_send(p, frame.data.data(), static_cast<uint32_t>(frame.data.size()),
                                frame.time);
            ports_[p].leaving.clear();
        }
    }

    void take(const lora_board_calls &calls) {
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            Port &port = ports_[p];
            while (port.arriving.size() < MOST_TAKEN) {
                Frame frame;
                frame.data.resize(LORA_EMU_FRAME_ROOM);
                uint32_t bytes = calls.port_take(p, frame.data.data(), &frame.time);
                if (!bytes) break;
                frame.data.resize(bytes);
                frame.time += timing_.random() ? 0 : timing_.config.link_latency;
                port.arriving.push_back(std::move(frame));
            }
        }
        look(calls);
    }

    // Ports may have come up, or gone down, while nothing ran.
    void look(const lora_board_calls &calls) {
        for (uint32_t p = 0; p < LORA_PORTS; p++) ports_[p].up = calls.port_up(p, &ports_[p].room);
    }

  private:
    struct Frame {
        std::vector<uint8_t> data;
        uint64_t time = 0;
    };
    struct Port {
        bool up = false, offered = false;
        uint32_t room = 0; // frames of the far end, as of the last exchange
        size_t at = 0;     // of the frame that comes in
        Pace out;
        std::deque<Frame> arriving;
        std::vector<Frame> leaving;
        std::vector<uint8_t> sent; // of the frame that leaves
    };

    bool begins(const Port &port, uint64_t now) {
        if (port.arriving.empty()) return false;
        if (port.offered) return true;
        bool there = port.at || port.arriving.front().time <= now;
        return there && timing_.unless(4);
    }

    void offer(VCard &c, uint32_t p) {
        Port &port = ports_[p];
        const std::vector<uint8_t> &data = port.arriving.front().data;
        size_t left = data.size() - port.at, count = left < BEAT ? left : size_t{BEAT};
        port.offered = true;
        c.rx_valid |= static_cast<uint8_t>(1u << p);
        c.rx_last |= static_cast<uint8_t>((left <= BEAT) << p);
        uint64_t keep = count == BEAT ? ~0ull : (1ull << count) - 1;
        std::memcpy(&c.rx_keep[2 * p], &keep, sizeof keep);
        std::memset(&c.rx_data[BEAT_WORDS * p], 0, BEAT);
        std::memcpy(&c.rx_data[BEAT_WORDS * p], &data[port.at], count);
    }

    static void take_beat(Port &port) {
        port.offered = false;
        port.at += BEAT;
        if (port.at < port.arriving.front().data.size()) return;
        port.arriving.pop_front();
        port.at = 0;
    }

    static bool poison(const VCard &c, uint32_t p) {
        lora_frame head;
        std::memcpy(&head, &c.tx_data[BEAT_WORDS * p], sizeof head);
        return head.kind == LORA_FRAME_POISON;
    }

    static void send_beat(Port &port, const VCard &c, uint32_t p, uint64_t now) {
        uint64_t keep;
        std::memcpy(&keep, &c.tx_keep[2 * p], sizeof keep);
        const auto *data = reinterpret_cast<const uint8_t *>(&c.tx_data[BEAT_WORDS * p]);
        port.out.take(now);
        port.sent.insert(port.sent.end(), data, data + __builtin_popcountll(keep));
        if (!(c.tx_last >> p & 1)) return;
        port.leaving.push_back({std::move(port.sent), now});
        port.sent.clear();
        if (port.room) port.room--;
    }

    Timing &timing_;
    Port ports_[LORA_PORTS];
};

#endif
