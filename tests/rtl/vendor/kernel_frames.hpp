// Cables of a packed kernel: frames between its streams of 32 bytes and the emulated board's ports,
// whose faults they suffer. A frame is there for the far end when it is whole.
#ifndef LORA_TEST_KERNEL_FRAMES_HPP
#define LORA_TEST_KERNEL_FRAMES_HPP

#include "../axi/packed_bits.hpp"

extern "C" {
#include "aurora.h"
}

#include <cstdint>
#include <cstring>
#include <mutex>
#include <random>
#include <vector>

template <class Model> class KernelFrames {
    enum : uint32_t { BEAT = 32, BEAT_WORDS = BEAT / 4 };

  public:
    // Before an edge. Whether the far end has a frame's room is looked at where one begins.
    void see(const Model &m) {
        std::lock_guard<std::mutex> held(lock());
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            if (packed(m.rx_tvalid, p, 1) && packed(m.rx_tready, p, 1)) taken(ports_[p]);
            if (packed(m.tx_tvalid, p, 1) && packed(m.tx_tready, p, 1)) send(m, p);
        }
    }

    // Behind it.
    void drive(Model &m) {
        std::lock_guard<std::mutex> held(lock());
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            Port &port = ports_[p];
            if (!port.bytes) port.bytes = arrived(emu_hal_port(p), port.data);
            if (port.bytes && !port.offered && random_() % 4) port.offered = true;
            offer(m, p);
            bool goes = !port.sent.empty() || (random_() % 4 && has_room(m, p));
            pack(m.tx_tready, p, 1, goes);
        }
    }

    void quiet(Model &m) {
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            pack(m.rx_tvalid, p, 1, 0);
            pack(m.tx_tready, p, 1, 0);
        }
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
        return uint32_t(bytes < EMU_SLOT_BYTES ? bytes : EMU_SLOT_BYTES);
    }

    void offer(Model &m, uint32_t p) {
        Port &port = ports_[p];
        pack(m.rx_tvalid, p, 1, port.offered);
        if (!port.offered) return;
        uint32_t left = port.bytes - port.at, count = left < BEAT ? left : BEAT;
        pack(m.rx_tlast, p, 1, left <= BEAT);
        pack(m.rx_tkeep, p, 32, low_bits(count));
        for (uint32_t i = 0; i < BEAT_WORDS; i++) {
            uint32_t word = 0;
            if (4 * i < count) std::memcpy(&word, &port.data[port.at + 4 * i], 4);
            pack(m.rx_tdata, BEAT_WORDS * p + i, 32, word);
        }
    }

    static void taken(Port &port) {
        port.offered = false;
        port.at += BEAT;
        if (port.at >= port.bytes) port.bytes = port.at = 0;
    }

    // Of the far end: a slot is kept for poison.
    static bool has_room(const Model &m, uint32_t p) {
        emu_port *port = emu_hal_port(p);
        if (!port->up) return false;
        lora_frame head;
        std::memcpy(&head, &m.tx_tdata[BEAT_WORDS * p], sizeof head);
        if (packed(m.tx_tvalid, p, 1) && head.kind == LORA_FRAME_POISON)
            return port->peer->tail - port->peer->head < EMU_FIFO_FRAMES;
        return emu_port_claim(port, 0) != nullptr;
    }

    void send(const Model &m, uint32_t p) {
        std::vector<uint8_t> &sent = ports_[p].sent;
        const auto *data = reinterpret_cast<const uint8_t *>(&m.tx_tdata[BEAT_WORDS * p]);
        auto count = uint32_t(__builtin_popcountll(packed(m.tx_tkeep, p, 32)));
        sent.insert(sent.end(), data, data + count);
        if (!packed(m.tx_tlast, p, 1)) return;
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
