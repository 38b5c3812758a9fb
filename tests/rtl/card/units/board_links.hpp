// A card has its own links: in the place of ../../core/board_links.hpp.
#ifndef LORA_TEST_BOARD_LINKS_HPP
#define LORA_TEST_BOARD_LINKS_HPP

#include "card.hpp"

class BoardLinks {
  public:
    void begin() {}
    bool testing() const { return false; }
    void see_store(Card &, uint32_t) {}
    void test(Card &) {}

    // What the Router has written to local memory, for the reference.
    void see(Card &card) {
        uint32_t place, value;
        while (card.units().take_local(place, value))
            memcpy(card.local(place), &value, sizeof value);
    }
};

#endif
