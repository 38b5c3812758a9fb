// A scene on simulated Routers: cables between them, runs that are ended in the middle and done
// again.
#ifndef ROUTER_CLUSTER_HPP
#define ROUTER_CLUSTER_HPP

#include "emulated.hpp"

#include <map>

using Tally = std::map<std::string, uint64_t>;

class Cluster {
  public:
    Cluster(const Scene &scene, Random &random, Tally &tally)
        : scene_(scene), random_(random), tally_(tally), boards_(scene.boards) {
        context_.randReset(2);
        context_.randSeed(1 + static_cast<int>(random.below(1 << 30)));
        for (uint32_t b = 0; b < scene.boards; b++) {
            cards_.push_back(std::make_unique<Card>(context_, scene.onchip_bytes, random));
            cards_[b]->onchip = scene.onchip[b];
            cards_[b]->unit->epoch = scene.epoch - 4; // frames are compared modulo 2^32
        }
        for (uint32_t b = 0; b < scene.boards; b++)
            for (uint32_t p = 0, to = 0, to_port = 0; p < LORA_PORTS; p++) {
                if (!scene.far_end(b, p, to, to_port)) continue;
                cables_.push_back(std::make_unique<Cable>(random, &sent.frames[b][p]));
                cards_[b]->out[p] = cards_[to]->in[to_port] = cables_.back().get();
            }
        for (auto &card : cards_)
            for (uint32_t p = 0; p < LORA_PORTS; p++)
                if (!card->out[p]) card->unit->link_up &= static_cast<uint8_t>(~(1 << p));
        for (int i = 0; i < 40; i++) cycle(); // until the units take commands
    }

    Sent sent; // of all runs, poison too

    // One run of all gathers from the first on; until `limit` cycles have passed, if it is not 0.
    bool run(uint32_t epoch, uint64_t limit) {
        begin(epoch);
        for (uint64_t began = now_; !all_ended(); cycle()) {
            if (limit && now_ - began >= limit) return false;
            if (now_ - began > 600000) throw std::runtime_error("the simulated boards stand still");
            for (uint32_t b = 0; b < scene_.boards; b++) turn(b);
        }
        return true;
    }

    // How a run ends in the middle.
    void abort_all() {
        for (auto &card : cards_) card->abort();
        settle();
    }
    void reset_all() {
        for (auto &card : cards_) card->reset();
        for (auto &cable : cables_) cable->reset();
        for (int i = 0; i < 3 && random_.once_in(2); i++) {
            cycle();
            for (auto &card : cards_) card->reset();
        }
        settle();
    }
    // One board fails; each that fails tells its neighbors.
    void poison(uint32_t from) {
        cards_[from]->abort();
        tell(from);
        boards_[from].failed = true;
        for (uint64_t began = now_; !all_ended(); cycle()) {
            if (now_ - began > 100000) {
                tally_["poison_stopped"]++;
                break;
            }
            for (uint32_t b = 0; b < scene_.boards; b++) turn(b);
        }
        abort_all();
    }

    uint64_t now() const { return now_; }
    const std::vector<uint8_t> &onchip(uint32_t b) const { return cards_[b]->onchip; }
    const std::vector<reference_outcome> &results(uint32_t b) const { return boards_[b].results; }

  private:
    struct Board {
        std::vector<reference_outcome> results;
        bool running = false, announced = false, failed = false;
        uint64_t pause = 0;
        bool looked[LORA_SEGMENTS] = {};
    };

    void cycle() {
        for (auto &card : cards_) card->cycle(now_);
        now_++;
    }

    void begin(uint32_t epoch) {
        epoch_ = epoch;
        boards_.assign(scene_.boards, {});
        for (auto &board : boards_) board.pause = random_.below(300);
    }

    bool ended(uint32_t b) const {
        return boards_[b].failed || boards_[b].results.size() == scene_.gathers[b].size();
    }
    bool all_ended() const {
        for (uint32_t b = 0; b < scene_.boards; b++)
            if (!ended(b)) return false;
        return true;
    }

    void tell(uint32_t b) { cards_[b]->poison(epoch_, scene_.step, static_cast<uint8_t>(b)); }

    // Until nothing runs and nothing is left at the memory ports.
    void settle() {
        cycle();
        uint64_t began = now_;
        auto busy = [](const auto &card) { return !card->unit->unit_idle; };
        while (std::any_of(cards_.begin(), cards_.end(), busy)) {
            if (now_ - began > 2000) throw std::runtime_error("a unit is not idle behind an abort");
            cycle();
        }
        for (auto &card : cards_)
            if (!card->buffer->idle()) throw std::runtime_error("idle, with reads under way");
    }

    void turn(uint32_t b) {
        Board &board = boards_[b];
        VRouter &unit = *cards_[b]->unit;
        if (ended(b)) return;
        if (random_.once_in(60)) announce(b);
        if (board.running) {
            look_at_segments(b);
            if (unit.result_valid && random_.once_in(3)) take(b);
            return;
        }
        if (board.pause > 0) {
            board.pause--;
            return;
        }
        if (!board.announced) {
            announce(b);
            if (random_.once_in(2)) return;
        }
        cards_[b]->start();
        board.running = true;
        board.announced = false;
        std::fill_n(board.looked, LORA_SEGMENTS, false);
    }

    // The next one, while another may still run.
    void announce(uint32_t b) {
        Board &board = boards_[b];
        size_t at = board.results.size() + board.running;
        if (board.announced || at == scene_.gathers[b].size()) return;
        Gather gather = scene_.gathers[b][at];
        gather.epoch = epoch_;
        cards_[b]->announce(gather);
        board.announced = true;
    }

    void take(uint32_t b) {
        Board &board = boards_[b];
        VRouter &unit = *cards_[b]->unit;
        reference_outcome result = cards_[b]->outcome();
        unit.result_ready = 1;
        board.running = false;
        board.pause = random_.once_in(2) ? 0 : random_.below(400);
        if (result.state == LORA_UNIT_FAILED) {
            if (result.status != LORA_ERR_LINK_POISON || result.port >= LORA_PORTS)
                throw std::runtime_error("a gather fails: status " + std::to_string(result.status));
            tally_["poison_received"]++;
            board.failed = true;
            tell(b);
            return;
        }
        board.results.push_back(result);
    }

    // Columns of a segment that is told to be complete are there.
    void look_at_segments(uint32_t b) {
        Board &board = boards_[b];
        size_t at = board.results.size();
        const Place &place = scene_.places[b][at];
        const lora_gather &command = scene_.gathers[b][at].command;
        uint32_t groups = (place.rows + LORA_ROW_GROUP - 1) / LORA_ROW_GROUP;
        for (uint32_t s = 0; s < LORA_SEGMENTS && groups; s++) {
            if (board.looked[s] || (cards_[b]->unit->segments >> 3 * s & 7) < groups) continue;
            board.looked[s] = true;
            tally_["segments"]++;
            uint32_t from = share_at(command.columns, command.segment_unit, s, 8) *
                            command.element_bytes;
            uint32_t to = share_at(command.columns, command.segment_unit, s + 1, 8) *
                          command.element_bytes;
            for (uint32_t row = 0; row < place.rows; row++)
                if (!std::equal(&place.bytes[static_cast<size_t>(row) * place.width] + from,
                                &place.bytes[static_cast<size_t>(row) * place.width] + to,
                                &cards_[b]->onchip[place.offset + row * place.stride] + from))
                    throw std::runtime_error("a segment is complete before its bytes are there");
        }
    }

    const Scene &scene_;
    Random &random_;
    Tally &tally_;
    VerilatedContext context_;
    std::vector<std::unique_ptr<Card>> cards_;
    std::vector<std::unique_ptr<Cable>> cables_;
    std::vector<Board> boards_;
    uint64_t now_ = 0;
    uint32_t epoch_ = 0;
};

#endif
