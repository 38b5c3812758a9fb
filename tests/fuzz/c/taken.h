/* How many inputs a target has taken: one of which all are refused would test nothing. */
#ifndef FUZZ_TAKEN_H
#define FUZZ_TAKEN_H

#include <stdint.h>

extern uint32_t fuzz_taken;

#endif
