/* Loops over a constant count whose every iteration works on a register of its own. */
#ifndef LORA_KERNELS_UNROLLED_H
#define LORA_KERNELS_UNROLLED_H

#if defined(__clang__)
#define UNROLLED
#else
#define UNROLLED _Pragma("GCC unroll 32")
#endif

#endif
