// The links of a card: frames between its streams and the emulated board's ports, whose faults they
// suffer. A frame is there for the far end when it is whole.
#ifndef LORA_TEST_FRAMES_HPP
#define LORA_TEST_FRAMES_HPP

#include "VControl.h"

extern "C" {
#include "aurora.h"
}

#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <vector>

class Frames {
    enum : uint32_t { BEAT = 64, BEAT_WORDS = BEAT / 4 };

  public:
    void quiet(VControl &c) { c.link_up = c.rx_valid = c.tx_ready = 0; }

    void forget() {
        for (Port &port : ports_) port = Port();
    }

    // Before a clock edge: what comes in, and whether there is room for what leaves.
    void drive(VControl &c) {
        std::lock_guard<std::mutex> held(lock());
        c.link_up = c.rx_valid = c.rx_last = c.tx_ready = 0;
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            Port &port = ports_[p];
            emu_port *emulated = emu_hal_port(p);
            c.link_up |= static_cast<uint8_t>(emulated->up << p);
            if (!port.bytes) port.bytes = arrived(emulated, port.data);
            if (port.bytes && (port.offered || random_() % 4)) offer(c, p);
            c.tx_ready |= static_cast<uint8_t>((!port.sent.empty() || random_() % 4) << p);
        }
        if (!c.link_up) { // nothing is on offer
            c.tx_ready = 0;
            return;
        }
        // What is on offer comes from registers.
        for (uint32_t p = 0; p < LORA_PORTS; p++)
            if (c.tx_valid >> p & 1 && ports_[p].sent.empty() && !has_room(c, p))
                c.tx_ready &= static_cast<uint8_t>(~(1u << p));
    }

    // What this edge takes. Whether anything moved.
    bool see(VControl &c) {
        std::lock_guard<std::mutex> held(lock());
        bool moved = false;
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            Port &port = ports_[p];
            if (c.rx_valid >> p & c.rx_ready >> p & 1) {
                port.offered = false;
                port.at += BEAT;
                moved = true;
                if (port.at >= port.bytes) port.bytes = port.at = 0;
            }
            if (!(c.tx_valid >> p & c.tx_ready >> p & 1)) continue;
            moved = true;
            send(c, p);
        }
        return moved;
    }

  private:
    struct Port {
        uint32_t bytes = 0, at = 0; // of the frame that comes in
        bool offered = false;
        std::vector<uint8_t> data = std::vector<uint8_t>(EMU_SLOT_BYTES), sent;
    };

    // Boards of several threads.
    static std::mutex &lock() {
        static std::mutex one;
        return one;
    }

    static uint32_t arrived(emu_port *port, std::vector<uint8_t> &data) {
        const lora_frame *frame = emu_port_head(port);
        if (!frame) return 0;
        std::memcpy(data.data(), frame, EMU_SLOT_BYTES);
        uint64_t bytes = sizeof *frame + uint64_t(frame->length) + 4;
        emu_port_pop(port);
        return static_cast<uint32_t>(bytes < EMU_SLOT_BYTES ? bytes : EMU_SLOT_BYTES);
    }

    void offer(VControl &c, uint32_t p) {
        Port &port = ports_[p];
        uint32_t left = port.bytes - port.at, count = left < BEAT ? left : BEAT;
        port.offered = true;
        c.rx_valid |= static_cast<uint8_t>(1u << p);
        c.rx_last |= static_cast<uint8_t>((left <= BEAT) << p);
        uint64_t keep = count == BEAT ? ~0ull : (1ull << count) - 1;
        std::memcpy(&c.rx_keep[2 * p], &keep, sizeof keep);
        std::memcpy(&c.rx_data[BEAT_WORDS * p], &port.data[port.at], BEAT);
    }

    // For a frame that begins: a slot of the far end is kept for poison.
    static bool has_room(const VControl &c, uint32_t p) {
        emu_port *port = emu_hal_port(p);
        if (!port->up) return false;
        lora_frame head;
        std::memcpy(&head, &c.tx_data[BEAT_WORDS * p], sizeof head);
        if (head.kind != LORA_FRAME_POISON) return emu_port_claim(port, 0) != nullptr;
        return port->peer->tail - port->peer->head < EMU_FIFO_FRAMES;
    }

    void send(VControl &c, uint32_t p) {
        std::vector<uint8_t> &sent = ports_[p].sent;
        uint64_t keep;
        std::memcpy(&keep, &c.tx_keep[2 * p], sizeof keep);
        const auto *data = reinterpret_cast<const uint8_t *>(&c.tx_data[BEAT_WORDS * p]);
        sent.insert(sent.end(), data, data + __builtin_popcountll(keep));
        if (!(c.tx_last >> p & 1)) return;
        emu_port *port = emu_hal_port(p);
        if (port->up && sent.size() <= EMU_SLOT_BYTES) {
            std::memcpy(emu_port_slot(port->peer, port->peer->tail), sent.data(), sent.size());
            emu_port_commit(port);
        }
        sent.clear();
    }

    Port ports_[LORA_PORTS];
    std::minstd_rand random_;
};

#endif
