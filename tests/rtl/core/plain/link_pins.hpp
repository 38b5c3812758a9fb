#ifndef LORA_TEST_LINK_PINS_HPP
#define LORA_TEST_LINK_PINS_HPP

#include "VControl.h"

// What a control says to links and hears from them.
struct LinkPins {
    static void quiet(VControl &c) { c.link_test_done = c.link_test_failed = 0; }
    static bool poison(const VControl &c) { return c.link_poison; }
    static bool test(const VControl &c) { return c.link_test_start; }
};

#endif
