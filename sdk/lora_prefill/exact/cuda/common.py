"""What the CUDA kernels share: single operations, the cut of K into segments and the tree over them
(docs/numbers.md, 1 and 2)."""

from __future__ import annotations

from lora_host import abi
from lora_host.coefficients import coefficients

DEVICE = r"""
#ifdef __CUDACC_RTC__
#define SYNC() __syncthreads()
#define UNROLL _Pragma("unroll")
#define UNROLL_NOT _Pragma("unroll 1")
static __device__ float from_half(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
static __device__ unsigned short to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
static __device__ float mul(float a, float b) { return __fmul_rn(a, b); }
static __device__ float add(float a, float b) { return __fadd_rn(a, b); }
static __device__ float root(float a) { return __fsqrt_rn(a); }
static __device__ float quotient(float a, float b) { return __fdiv_rn(a, b); }
/* FP16 values: their product is exact in FP32, so fusing changes no bit */
static __device__ float mul_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
static __device__ float to_float(int value) { return __int2float_rn(value); }
static __device__ int to_int(float value) { return __float2int_rn(value); }
static __device__ float of_bits(int bits) { return __int_as_float(bits); }
#endif

/* 2.1: the first unit of a segment of `units` units */
static __device__ int segment_unit(int segment, int units) { return segment * units / SEGMENTS; }

/* 2.2 of N sums at once, as those of segments 0, 1, .. arrive: what waits for its partner lies in
 * `level`, outside registers since its index is no constant. After the last of 2, 4 or 8 segments
 * `sum` is the total. An empty segment adds +0, which changes no bit. */
template <int N>
static __device__ void tree_step(float (*level)[N], int segment, float *sum) {
  int bit = 0;
  UNROLL_NOT
  for (; segment >> bit & 1; bit++) {
    UNROLL
    for (int i = 0; i < N; i++) sum[i] = add(level[bit][i], sum[i]);
  }
  if (bit < 3) {
    UNROLL
    for (int i = 0; i < N; i++) level[bit][i] = sum[i];
  }
}

/* 16 bytes at once: eight FP16 values, in pairs since that takes half of the registers */
struct alignas(16) Words {
  unsigned int at[4];
};
struct Eight {
  Words pairs;
  __device__ float value(int i) const {
    return from_half((unsigned short)(pairs.at[i / 2] >> i % 2 * 16));
  }
};

/* values[0..7], those from `count` on +0; `whole`: all are there and lie at a multiple of 16 */
static __device__ Eight eight(const unsigned short *values, int count, bool whole) {
  Eight found = {{{0, 0, 0, 0}}};
  if (whole) {
    found.pairs = *(const Words *)values;
  } else {
    UNROLL
    for (int i = 0; i < 8; i++)
      if (i < count) found.pairs.at[i / 2] |= (unsigned int)values[i] << i % 2 * 16;
  }
  return found;
}

/* 4.1 */
static __device__ float power_of_two(int n) { return of_bits((n + 127) << 23); }
static __device__ float exponential(float x) {
  const float c[] = {EXP_C};
  if (!(x == x)) return x;
  if (x < EXP_MIN) return 0.0f;
  if (x > EXP_MAX) return of_bits(0x7f800000);
  const int n = to_int(mul(x, LOG2E));
  const float r = add(add(x, -mul(to_float(n), LN2_HI)), -mul(to_float(n), LN2_LO));
  float p = c[0];
  UNROLL
  for (int i = 1; i < (int)(sizeof c / sizeof *c); i++) p = add(mul(p, r), c[i]);
  const int half = n >> 1;
  return mul(mul(p, power_of_two(half)), power_of_two(n - half));
}
"""


def constants() -> str:
    """The contract's sizes and coefficients; nine digits name an FP32 value."""
    chunk = abi.CHUNK_POSITIONS // abi.UNIT_COLUMNS
    lines = [
        f"enum {{ UNIT = {abi.UNIT_COLUMNS}, SEGMENTS = {abi.SEGMENTS}, CHUNK_TILES = {chunk} }};\n"
    ]
    for name in ("exp_c", "exp_min", "exp_max", "log2e", "ln2_hi", "ln2_lo"):
        values = ", ".join(f"{float(value):.9e}f" for value in coefficients(name))
        lines.append(f"#define {name.upper()} {values}\n")
    return "".join(lines)
