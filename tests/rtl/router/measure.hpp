// Cycles of one gather in a ring, where memory and cables let nobody wait but by their latency.
#ifndef ROUTER_MEASURE_HPP
#define ROUTER_MEASURE_HPP

#include "card.hpp"

#include <algorithm>

inline uint64_t measure(uint32_t boards, uint32_t rows, uint32_t columns, uint32_t latency) {
    Random random(boards * 1000 + rows);
    VerilatedContext context;
    const uint32_t width = 2 * columns;
    std::vector<std::unique_ptr<Card>> cards;
    std::vector<std::unique_ptr<Cable>> cables;
    for (uint32_t b = 0; b < boards; b++) {
        cards.push_back(std::make_unique<Card>(context, rows * width, random));
        cards[b]->buffer->plain();
        for (auto &byte : cards[b]->onchip) byte = static_cast<uint8_t>(random.next());
    }
    for (uint32_t b = 0; b < boards; b++)
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            cables.push_back(std::make_unique<Cable>(random, nullptr));
            cables.back()->plain(latency);
            uint32_t to = (b + (p == 0 ? 1 : boards - 1)) % boards;
            cards[b]->out[p] = cards[to]->in[1 - p] = cables.back().get();
        }
    uint64_t now = 0;
    for (; now < 40; now++)
        for (auto &card : cards) card->cycle(now);
    for (uint32_t b = 0; b < boards; b++) {
        Gather gather;
        gather.command.columns = columns;
        gather.command.element_bytes = 2;
        gather.command.share_unit = gather.command.segment_unit = 32;
        gather.command.stride = width;
        gather.command.span = LORA_SPAN_ALL;
        gather.list.rank = static_cast<uint8_t>(b);
        gather.list.boards = static_cast<uint8_t>(boards);
        gather.list.ring = 1;
        gather.list.port_previous = 1;
        gather.rows = rows;
        cards[b]->announce(gather);
    }
    // as in a card, where a gather is announced when the one before has ended
    for (uint64_t end = now + 10000; now < end; now++)
        for (auto &card : cards) card->cycle(now);
    for (auto &card : cards) card->start();
    auto over = [](const auto &card) { return card->unit->result_valid; };
    uint64_t began = now;
    for (; !std::all_of(cards.begin(), cards.end(), over); now++) {
        if (now - began > 1000000) throw std::runtime_error("the gather stands still");
        for (auto &card : cards) card->cycle(now);
    }
    for (auto &card : cards)
        if (card->outcome().state != LORA_UNIT_DONE || card->onchip != cards[0]->onchip ||
            card->unit->result_sum != cards[0]->unit->result_sum)
            throw std::runtime_error("the boards have gathered different rows");
    return now - began;
}

#endif
