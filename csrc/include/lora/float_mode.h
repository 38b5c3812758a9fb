/* Nearest rounding, subnormals honoured: what every kernel computes under, whatever a library that
 * the program loaded has set in this thread. docs/numbers.md, 1.1. */
#ifndef LORA_FLOAT_MODE_H
#define LORA_FLOAT_MODE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

#define FLOAT_MODE_BITS 0xe040u /* rounding control, flush to zero, denormals are zero */

/* Returns the mode to give back to float_mode_restore. */
static inline uint64_t float_mode_set(void) {
    uint32_t before = _mm_getcsr();
    if (before & FLOAT_MODE_BITS) _mm_setcsr(before & ~FLOAT_MODE_BITS);
    return before;
}

static inline void float_mode_restore(uint64_t before) {
    if (before & FLOAT_MODE_BITS) _mm_setcsr((uint32_t)before);
}

#elif defined(__aarch64__)
#define FLOAT_MODE_BITS 0x1c80000u /* FPCR: rounding mode, flush to zero, and its FP16 kind */

static inline uint64_t float_mode_set(void) {
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before & ~(uint64_t)FLOAT_MODE_BITS));
    return before;
}

static inline void float_mode_restore(uint64_t before) {
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
}

#else
static inline uint64_t float_mode_set(void) { return 0; }

static inline void float_mode_restore(uint64_t before) { (void)before; }
#endif

#endif
