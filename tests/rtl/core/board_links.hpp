// Poison, epochs and link tests of a control, by the emulated board's links.
#ifndef LORA_TEST_BOARD_LINKS_HPP
#define LORA_TEST_BOARD_LINKS_HPP

#include "card.hpp"

extern "C" {
#include "hal.h"
}
#include "hal_card.h"

class BoardLinks {
  public:
    void begin() { testing_ = false; }
    bool testing() const { return testing_; }

    // Behind a clock edge.
    void see(Card &card) {
        VControl &core = card.core();
        core.link_test_done = core.link_test_failed = 0;
        if (card.take_poison())
            hal_links_poison(
                reinterpret_cast<const lora_list *>(card.local(core.link_list)),
                reinterpret_cast<const lora_step_state *>(card.local(core.link_state)));
        if (card.take_link_test()) begin_test(card);
    }

    void see_store(Card &card, uint32_t address) {
        if (address == CARD_LINKS + CARD_LINK_EPOCH) hal_links_epoch(card.core().link_epoch);
    }

    // A slice of a test.
    void test(Card &card) {
        uint32_t state = hal_link_test(&test_), words[sizeof test_ / 4];
        if (state == LORA_UNIT_BUSY) return;
        testing_ = false;
        memcpy(words, &test_, sizeof words);
        for (uint32_t i = 0; i < sizeof words / 4; i++)
            card.store_local(card.core().link_test + 4 * i, words[i]);
        card.core().link_test_done = state == LORA_UNIT_DONE;
        card.core().link_test_failed = state != LORA_UNIT_DONE;
    }

  private:
    // The link kernels read the test's record in local memory, and write it at the end.
    void begin_test(Card &card) {
        memcpy(&test_, card.local(card.core().link_test), sizeof test_);
        testing_ = true;
    }

    bool testing_ = false;
    lora_link_test test_ = {};
};

#endif
