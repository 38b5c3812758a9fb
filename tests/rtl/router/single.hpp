// One Router, simulated and emulated, with the same frames on both ports.
#ifndef ROUTER_SINGLE_HPP
#define ROUTER_SINGLE_HPP

#include "cluster.hpp"
#include "mutations.hpp"

struct Ending {
    reference_outcome result;
    std::vector<uint8_t> onchip;
    std::vector<Frame> sent[LORA_PORTS];
};

class Single {
  public:
    Single(Random &random, const Gather &gather, const std::vector<uint8_t> &onchip, uint32_t down)
        : random_(random), gather_(gather), onchip_(onchip), down_(down) {}

    std::vector<Twin> frames[LORA_PORTS]; // that come in

    Ending emulate() {
        Ending ending;
        reference *r = reference_new(1, static_cast<uint32_t>(onchip_.size()));
        std::copy(onchip_.begin(), onchip_.end(), reference_onchip(r, 0));
        for (uint32_t p = 0; p < LORA_PORTS; p++)
            if (down_ >> p & 1) reference_down(r, 0, p);
        lora_step_state state = state_of(gather_);
        reference_start(r, 0, &gather_.command, &gather_.list, &state);
        size_t put[LORA_PORTS] = {};
        for (bool moved = true; moved;) {
            moved = false;
            for (uint32_t p = 0; p < LORA_PORTS; p++)
                for (; put[p] < frames[p].size(); put[p]++, moved = true) {
                    const Frame &frame = frames[p][put[p]].emulated;
                    if (!reference_put(r, 0, p, frame.data(), static_cast<uint32_t>(frame.size())))
                        break;
                }
            size_t sent = ending.sent[0].size() + ending.sent[1].size();
            reference_pump(r, 0, note, ending.sent);
            for (uint32_t p = 0; p < LORA_PORTS; p++) reference_empty(r, 0, p);
            moved = moved || ending.sent[0].size() + ending.sent[1].size() != sent;
            if (reference_result(r, 0).state != LORA_UNIT_BUSY) break;
        }
        ending.result = reference_result(r, 0);
        ending.onchip.assign(reference_onchip(r, 0), reference_onchip(r, 0) + onchip_.size());
        reference_free(r);
        return ending;
    }

    Ending simulate() {
        Ending ending;
        VerilatedContext context;
        context.randReset(2);
        context.randSeed(1 + static_cast<int>(random_.below(1 << 30)));
        Card card(context, static_cast<uint32_t>(onchip_.size()), random_);
        card.onchip = onchip_;
        std::unique_ptr<Cable> in[LORA_PORTS], out[LORA_PORTS];
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            in[p] = std::make_unique<Cable>(random_, nullptr);
            out[p] = std::make_unique<Cable>(random_, &ending.sent[p]);
            card.in[p] = in[p].get();
            card.out[p] = out[p].get();
        }
        uint64_t now = 0;
        for (; now < 40; now++) card.cycle(now);
        card.unit->link_up = static_cast<uint8_t>(3 & ~down_);
        card.announce(gather_);
        card.start();
        card.cycle(now++);
        for (uint32_t p = 0; p < LORA_PORTS; p++)
            for (const Twin &twin : frames[p]) in[p]->put(twin.simulated, now);
        for (uint64_t moved = now; now - moved < 2000 && !card.unit->result_valid; now++) {
            uint64_t writes = card.buffer->writes();
            if (card.unit->rx_valid & card.unit->rx_ready) moved = now;
            card.cycle(now);
            for (auto &cable : out)
                while (!cable->empty()) {
                    cable->pop();
                    moved = now;
                }
            if (card.buffer->writes() != writes) moved = now;
        }
        finish(card, ending, now);
        ending.onchip = card.onchip;
        return ending;
    }

  private:
    static void note(void *user, uint32_t port, const uint8_t *frame, uint32_t bytes) {
        static_cast<std::vector<Frame> *>(user)[port].emplace_back(frame, frame + bytes);
    }

    void finish(Card &card, Ending &ending, uint64_t now) {
        VRouter &unit = *card.unit;
        ending.result = {};
        ending.result.state = unit.result_valid ? unit.result_state : uint32_t{LORA_UNIT_BUSY};
        ending.result.status = unit.result_status;
        ending.result.port = unit.result_port;
        ending.result.sent = unit.result_frames[0];
        ending.result.received = unit.result_frames[1];
        ending.result.dropped = unit.result_frames[2];
        for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
            ending.result.done[s] = unit.segments >> 3 * s & 7;
        if (!unit.result_valid) card.abort();
        else unit.result_ready = 1;
        // what has left the unit still arrives
        for (int i = 0; i < 1000; i++) {
            card.cycle(now + static_cast<uint64_t>(i));
            for (auto &cable : card.out)
                while (!cable->empty()) cable->pop();
        }
        if (!unit.unit_idle || !card.buffer->idle())
            throw std::runtime_error("a unit is not idle at last");
    }

    Random &random_;
    const Gather &gather_;
    const std::vector<uint8_t> &onchip_;
    uint32_t down_;
};

#endif
