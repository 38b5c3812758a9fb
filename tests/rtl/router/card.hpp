// A simulated Router with its on-chip buffer, between two cables each way.
#ifndef ROUTER_CARD_HPP
#define ROUTER_CARD_HPP

#include "links.hpp"

#include <memory>

struct Gather { // what a board's Router is told
    lora_gather command{};
    lora_list list{};
    uint32_t rows = 0, epoch = 0, step = 0;
};

class Card {
  public:
    std::vector<uint8_t> onchip;
    Cable *out[LORA_PORTS] = {}, *in[LORA_PORTS] = {};
    std::unique_ptr<VRouter> unit;
    std::unique_ptr<Buffer> buffer;

    Card(VerilatedContext &context, uint32_t onchip_bytes, Random &random)
        : onchip(onchip_bytes), unit(std::make_unique<VRouter>(&context)), random_(random) {
        buffer = std::make_unique<Buffer>(*unit, onchip, random);
        for (auto word = 0; word < 16; word++) unit->unit_line[word] = 0;
        unit->unit_announce = unit->unit_start = unit->unit_abort = unit->result_ready = 0;
        unit->poison_valid = unit->rx_valid = unit->tx_ready = 0;
        unit->line_valid = unit->read_ready = unit->write_ready = 0;
        unit->onchip_bytes = onchip_bytes;
        unit->epoch = unit->step = 0;
        unit->link_up = 3;
        unit->list_boards = 0;
        unit->rst = 1;
        unit->clk = 0;
        unit->eval();
        edge();
        unit->rst = 0;
    }
    ~Card() { unit->final(); }

    void edge() {
        unit->clk = 1;
        unit->eval();
        unit->clk = 0;
        unit->eval();
    }

    // Between two edges: what is to happen at the next one.
    void announce(const Gather &gather) {
        std::memcpy(&unit->unit_line[0], &gather.command, sizeof gather.command);
        unit->unit_rows = static_cast<uint8_t>(gather.rows);
        unit->unit_announce = 1;
        announced_ = gather;
    }
    void start() {
        const Gather &gather = announced_;
        unit->unit_start = 1;
        unit->list_rank = gather.list.rank;
        unit->list_boards = gather.list.boards;
        unit->list_ring = gather.list.ring;
        unit->port_next = gather.list.port_next;
        unit->port_previous = gather.list.port_previous;
        unit->stage_boards = gather.list.stage_boards;
        unit->epoch = gather.epoch;
        unit->step = gather.step;
        buffer->go();
    }
    void poison(uint32_t epoch, uint32_t step, uint8_t source) {
        unit->poison_valid = 3;
        unit->poison_epoch = epoch;
        unit->poison_step = step;
        unit->poison_source = source;
    }
    void abort() { unit->unit_abort = 1; }
    void reset() { unit->rst = 1; }

    void cycle(uint64_t now) {
        if (unit->rst) buffer->reset();
        else buffer->drive(now);
        drive_links(now);
        // outputs that follow inputs without a clock
        unit->eval();
        take_links(now);
        bool stops = unit->unit_abort || unit->rst;
        edge();
        if (stops) buffer->stop();
        unit->unit_announce = unit->unit_start = unit->unit_abort = unit->poison_valid = unit->rst =
            0;
        unit->result_ready = 0;
    }

  private:
    void drive_links(uint64_t now) {
        unit->rx_valid = unit->tx_ready = 0;
        for (uint32_t p = 0; p < LORA_PORTS && !unit->rst; p++) {
            if (out[p] && out[p]->ready()) unit->tx_ready |= 1 << p;
            if (!in[p] || !in[p]->offers(now)) continue;
            const Beat &beat = in[p]->front();
            unit->rx_valid |= 1 << p;
            std::memcpy(&unit->rx_data[16 * p], beat.data, LINE);
            std::memcpy(&unit->rx_keep[2 * p], &beat.keep, sizeof beat.keep);
            unit->rx_last = static_cast<uint8_t>((unit->rx_last & ~(1 << p)) | beat.last << p);
        }
    }
    void take_links(uint64_t now) {
        for (uint32_t p = 0; p < LORA_PORTS && !unit->rst; p++) {
            if (unit->rx_valid >> p & unit->rx_ready >> p & 1) in[p]->pop();
            if (!(unit->tx_valid >> p & 1)) continue;
            if (!out[p]) throw std::runtime_error("a frame leaves by a port without a cable");
            if (!(unit->tx_ready >> p & 1)) continue;
            Beat beat{};
            std::memcpy(beat.data, &unit->tx_data[16 * p], LINE);
            std::memcpy(&beat.keep, &unit->tx_keep[2 * p], sizeof beat.keep);
            beat.last = unit->tx_last >> p & 1;
            out[p]->push(beat, now);
        }
    }

    Random &random_;
    Gather announced_;
};

#endif
