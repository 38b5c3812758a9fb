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
    bool full = false;                    // the far ends take nothing

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
        if (random_.once_in(4)) test_before(card, now);
        card.announce(gather_);
        card.start();
        card.cycle(now++);
        for (uint32_t p = 0; p < LORA_PORTS; p++)
            for (const Twin &twin : frames[p]) in[p]->put(twin.simulated, now);
        for (auto &cable : out) cable->close(full);
        for (uint64_t moved = now; now - moved < 2000 && !card.unit->result_valid; now++) {
            uint64_t moves = card.buffer->moves();
            if (card.unit->rx_valid & card.unit->rx_ready) moved = now;
            card.cycle(now);
            if (drain(card) || card.buffer->moves() != moves) moved = now;
        }
        finish(card, ending, now);
        ending.onchip = card.onchip;
        return ending;
    }

    // Whether something left.
    static bool drain(Card &card) {
        bool moved = false;
        for (auto &cable : card.out)
            while (!cable->empty()) {
                cable->pop();
                moved = true;
            }
        return moved;
    }

  private:
    // A link test that the gather ends.
    void test_before(Card &card, uint64_t &now) {
        lora_link_test test{};
        test.size = sizeof test;
        test.frames = 1 + random_.below(3);
        test.payload = 16 + random_.below(300);
        test.ports[0].enabled = test.ports[1].enabled = 1;
        card.test(test, 5);
        for (uint64_t end = now + random_.below(4000); now < end; now++) {
            card.cycle(now);
            drain(card);
        }
    }

    static void note(void *user, uint32_t port, const uint8_t *frame, uint32_t bytes) {
        static_cast<std::vector<Frame> *>(user)[port].emplace_back(frame, frame + bytes);
    }

    void finish(Card &card, Ending &ending, uint64_t now) {
        VRouter &unit = *card.unit;
        ending.result = card.outcome();
        if (!unit.result_valid) card.abort();
        else unit.result_ready = 1;
        // what has been made still leaves, and arrives
        for (auto &cable : card.out) cable->close(false);
        for (uint64_t moved = now; now - moved < 1000; now++) {
            card.cycle(now);
            if (drain(card)) moved = now;
        }
        if (!unit.unit_idle || !card.buffer->idle())
            throw std::runtime_error("a unit is not idle at last");
        reference_outcome kept = card.outcome();
        const reference_outcome &told = ending.result;
        if (kept.waits != told.waits || !std::equal(kept.sent_by, kept.sent_by + 2, told.sent_by) ||
            !std::equal(kept.received_by, kept.received_by + 2, told.received_by))
            throw std::runtime_error("how far it was is lost behind the gather");
    }

    Random &random_;
    const Gather &gather_;
    const std::vector<uint8_t> &onchip_;
    uint32_t down_;
};

#endif
