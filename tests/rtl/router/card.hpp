// A simulated Router with its on-chip buffer, between two cables each way.
#ifndef ROUTER_CARD_HPP
#define ROUTER_CARD_HPP

#include "links.hpp"
#include "reference.h"

#include <memory>

struct Gather { // what a board's Router is told
    lora_gather command{};
    lora_list list{};
    uint32_t rows = 0, epoch = 0, step = 0;
};

class Card {
  public:
    std::vector<uint8_t> onchip;
    uint32_t local[64] = {}; // of the core's memory, from RECORD on
    static constexpr uint32_t RECORD = 0x1230;
    uint32_t test_end = LORA_UNIT_BUSY;
    Cable *out[LORA_PORTS] = {}, *in[LORA_PORTS] = {};
    std::unique_ptr<VRouter> unit;
    std::unique_ptr<Buffer> buffer;

    Card(VerilatedContext &context, uint32_t onchip_bytes, Random &random)
        : onchip(onchip_bytes), unit(std::make_unique<VRouter>(&context)), random_(random) {
        buffer = std::make_unique<Buffer>(*unit, onchip, random);
        for (auto word = 0; word < 16; word++) unit->unit_line[word] = 0;
        unit->unit_announce = unit->unit_start = unit->unit_abort = unit->result_ready = 0;
        unit->poison_valid = unit->rx_valid = unit->tx_ready = 0;
        unit->test_start = unit->local_ready = 0;
        unit->line_valid = unit->read_ready = unit->write_ready = 0;
        unit->onchip_bytes = onchip_bytes;
        unit->epoch = unit->step = 0;
        unit->link_up = 3;
        unit->list_boards = 0;
        unit->held = 1;
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
        unit->list_rank = gather.list.rank;
        unit->list_boards = gather.list.boards;
        unit->list_ring = gather.list.ring;
        unit->port_next = gather.list.port_next;
        unit->port_previous = gather.list.port_previous;
        unit->stage_boards = gather.list.stage_boards;
        announced_ = gather;
    }
    void start() {
        const Gather &gather = announced_;
        unit->unit_start = 1;
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
    // What is told with a result; of a gather that is not over, how far it is.
    reference_outcome outcome() const {
        reference_outcome result{};
        bool over = unit->result_valid;
        result.state = over ? unit->result_state : uint32_t{LORA_UNIT_BUSY};
        result.status = over ? unit->result_status : uint32_t{LORA_OK};
        result.port = over ? unit->result_port : uint32_t{LORA_NO_PORT};
        result.sent = unit->result_frames[0];
        result.received = unit->result_frames[1];
        result.dropped = unit->result_frames[2];
        for (uint32_t s = 0; s < LORA_SEGMENTS; s++) result.done[s] = unit->segments >> 3 * s & 7;
        if (result.state == LORA_UNIT_DONE) result.sum = unit->result_sum;
        result.waits = unit->progress[0];
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            result.sent_by[p] = unit->progress[1 + p];
            result.received_by[p] = unit->progress[3 + p];
        }
        return result;
    }
    void test(const lora_link_test &record, uint32_t serial) {
        std::memcpy(local, &record, sizeof record);
        unit->test_record = RECORD;
        unit->serial = serial;
        unit->test_start = 1;
        test_end = LORA_UNIT_BUSY;
    }
    lora_link_test record() const {
        lora_link_test record;
        std::memcpy(&record, local, sizeof record);
        return record;
    }
    void abort() { unit->unit_abort = 1; }
    void reset() { unit->rst = 1; }

    void cycle(uint64_t now) {
        if (unit->rst) buffer->reset();
        else buffer->drive(now);
        drive_links(now);
        unit->local_ready = random_.below(4) > 0;
        unit->local_data = local_;
        // outputs that follow inputs without a clock
        unit->eval();
        take_links(now);
        take_local();
        bool stops = unit->unit_abort || unit->rst;
        edge();
        if (stops) buffer->stop();
        unit->unit_announce = unit->unit_start = unit->unit_abort = unit->poison_valid = unit->rst =
            0;
        unit->result_ready = unit->test_start = 0;
        if (unit->test_done) test_end = LORA_UNIT_DONE;
        if (unit->test_failed) test_end = LORA_UNIT_FAILED;
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

    void take_local() {
        local_ = static_cast<uint32_t>(random_.next());
        if (!unit->local_valid || !unit->local_ready || unit->rst) return;
        uint32_t word = unit->local_word - RECORD / 4;
        if (word >= 64) throw std::runtime_error("local memory is used beyond the record");
        local_ = local[word];
        if (unit->local_write && unit->local_write != 15)
            throw std::runtime_error("a part of a word is written");
        if (unit->local_write) local[word] = unit->local_stored;
    }

    Random &random_;
    uint32_t local_ = 0; // what was read
    Gather announced_;
};

#endif
