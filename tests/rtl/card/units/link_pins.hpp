#ifndef LORA_TEST_LINK_PINS_HPP
#define LORA_TEST_LINK_PINS_HPP

#include "VControl.h"

// A card keeps to itself what its control says to links.
struct LinkPins {
    static void quiet(VControl &) {}
    static bool poison(const VControl &) { return false; }
    static bool test(const VControl &) { return false; }
};

#endif
