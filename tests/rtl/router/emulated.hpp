// The same scene on the emulator's Routers.
#ifndef ROUTER_EMULATED_HPP
#define ROUTER_EMULATED_HPP

#include "reference.h"
#include "scene.hpp"

struct Sent { // by board and port
    std::vector<Frame> frames[4][LORA_PORTS];
};

struct Outcome { // of a board: a result each gather, and its buffer at the end
    std::vector<reference_outcome> results;
    std::vector<uint8_t> onchip;
};

// Keeps what the emulator reads of a step.
inline lora_step_state state_of(const Gather &gather) {
    lora_step_state state{};
    state.epoch = gather.epoch;
    state.step = gather.step;
    state.row_count = gather.rows;
    return state;
}

class Emulated {
  public:
    Emulated(const Scene &scene, Sent &sent) : scene_(scene), sent_(sent) {
        r_ = reference_new(scene.boards, scene.onchip_bytes);
        for (uint32_t b = 0; b < scene.boards; b++) {
            std::copy(scene.onchip[b].begin(), scene.onchip[b].end(), reference_onchip(r_, b));
            for (uint32_t p = 0, to = 0, to_port = 0; p < LORA_PORTS; p++)
                if (scene.far_end(b, p, to, to_port)) reference_cable(r_, b, p, to, to_port);
        }
    }
    ~Emulated() { reference_free(r_); }

    std::vector<Outcome> run() {
        std::vector<Outcome> outcomes(scene_.boards);
        states_.resize(scene_.boards);
        for (uint32_t b = 0; b < scene_.boards; b++) start(b, 0);
        for (uint32_t left = scene_.boards, rounds = 0; left > 0; rounds++) {
            if (rounds > 100000) throw std::runtime_error("the emulated boards stand still");
            for (uint32_t b = 0; b < scene_.boards; b++) left -= turn(b, outcomes[b]);
        }
        for (uint32_t b = 0; b < scene_.boards; b++)
            outcomes[b].onchip.assign(reference_onchip(r_, b),
                                      reference_onchip(r_, b) + scene_.onchip_bytes);
        return outcomes;
    }

  private:
    static void note(void *user, uint32_t port, const uint8_t *frame, uint32_t bytes) {
        static_cast<std::vector<Frame> *>(user)[port].emplace_back(frame, frame + bytes);
    }

    void start(uint32_t b, size_t i) {
        const Gather &gather = scene_.gathers[b][i];
        states_[b] = state_of(gather);
        reference_start(r_, b, &gather.command, &gather.list, &states_[b]);
    }

    // Whether this was the board's last.
    uint32_t turn(uint32_t b, Outcome &outcome) {
        size_t done = outcome.results.size();
        if (done == scene_.gathers[b].size()) return 0;
        reference_pump(r_, b, note, sent_.frames[b]);
        reference_outcome result = reference_result(r_, b);
        if (result.state == LORA_UNIT_BUSY) return 0;
        if (result.state != LORA_UNIT_DONE) throw std::runtime_error("an emulated gather fails");
        outcome.results.push_back(result);
        if (++done == scene_.gathers[b].size()) return 1;
        start(b, done);
        return 0;
    }

    const Scene &scene_;
    Sent &sent_;
    reference *r_;
    std::vector<lora_step_state> states_;
};

#endif
