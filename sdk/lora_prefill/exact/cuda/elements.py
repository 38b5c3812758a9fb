"""CUDA kernels of single values: what matmuls end and begin with, rotation, INT8 heads
(docs/numbers.md, 3.3, 3.7, 6.1 to 6.3 and 6.7)."""

from __future__ import annotations

KERNELS = ("quantize", "round_products", "rotate_heads", "quantize_heads")
SOURCE = r"""
/* Blocks of 256 threads have 1024 columns of a row, each thread every 256th */
enum { AT_ONCE = 256, EACH_TIMES = 4 };

/* 6.1 */
static __device__ int quantized(float x, float factor) {
  const float t = mul(x, factor);
  if (!(t == t)) return 0;
  return to_int(fminf(fmaxf(t, -127.0f), 127.0f));
}

/* int8 y[rows][n] of FP16 x[rows][n], rows `stride` apart, by each row's factor, or where `factors`
 * is null by one */
extern "C" __global__ void quantize(const unsigned short *x, const float *factors, float factor,
                                    signed char *y, int n, int stride) {
  const float by = factors ? factors[blockIdx.y] : factor;
  UNROLL
  for (int i = 0; i < EACH_TIMES; i++) {
    const int column = (blockIdx.x * EACH_TIMES + i) * AT_ONCE + threadIdx.x;
    if (column >= n) return;
    const float value = from_half(x[(size_t)blockIdx.y * stride + column]);
    y[(size_t)blockIdx.y * n + column] = (signed char)quantized(value, by);
  }
}

/* FP16 y = FP16(v + bias[n]), v = total[rows][n] times columns[n], then times the row's factor;
 * null stands for no such step */
extern "C" __global__ void round_products(const float *total, const float *columns,
                                          const float *factors, float factor, const float *bias,
                                          unsigned short *y, int n) {
  const float by = factors ? factors[blockIdx.y] : factor; /* times 1 changes no bit */
  UNROLL
  for (int i = 0; i < EACH_TIMES; i++) {
    const int column = (blockIdx.x * EACH_TIMES + i) * AT_ONCE + threadIdx.x;
    if (column >= n) return;
    float v = total[(size_t)blockIdx.y * n + column];
    if (columns) v = mul(v, columns[column]);
    v = mul(v, by);
    if (bias) v = add(v, bias[column]);
    y[(size_t)blockIdx.y * n + column] = to_half(v);
  }
}

/* FP16 y[rows][n] = x with its first `rotated` columns, heads of `size`, rotated (3.7) by
 * angles[rows][2][size/2], cosines and sines */
extern "C" __global__ void rotate_heads(const unsigned short *x, const float *angles,
                                        unsigned short *y, int n, int rotated, int size) {
  const int column = blockIdx.x * AT_ONCE + threadIdx.x, half = size / 2;
  if (column >= n) return;
  const unsigned short *row = x + (size_t)blockIdx.y * n;
  unsigned short found = row[column];
  if (column < rotated) {
    const int at = column % size, first = column - at + at % half;
    const float *cosines = angles + (size_t)blockIdx.y * size, *sines = cosines + half;
    const float cosine = cosines[at % half], sine = sines[at % half];
    const float a = from_half(row[first]), b = from_half(row[first + half]);
    found = to_half(at < half ? add(mul(a, cosine), -mul(b, sine))
                              : add(mul(b, cosine), mul(a, sine)));
  }
  y[(size_t)blockIdx.y * n + column] = found;
}

/* 6.7 of FP16 x[rows][heads][size], rows `stride` apart, a block of 32 threads a head: int8
 * y[heads][rows][size], FP16 scales[heads][rows], and what is read back, as y */
extern "C" __global__ void quantize_heads(const unsigned short *x, signed char *y,
                                          unsigned short *scales, unsigned short *back, int size,
                                          int stride) {
  __shared__ float each[32];
  const unsigned short *head = x + (size_t)blockIdx.x * stride + (size_t)blockIdx.y * size;
  const size_t row = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
  float most = 0.0f;
  for (int i = threadIdx.x; i < size; i += 32) most = fmaxf(most, fabsf(from_half(head[i])));
  each[threadIdx.x] = most;
  SYNC();
  for (int i = 0; i < 32; i++) most = fmaxf(most, each[i]);
  const unsigned short bits = to_half(quotient(most, 127.0f));
  const float scale = from_half(bits), factor = scale == 0.0f ? 0.0f : quotient(1.0f, scale);
  if (threadIdx.x == 0) scales[row] = bits;
  for (int i = threadIdx.x; i < size; i += 32) {
    const int found = quantized(from_half(head[i]), factor);
    y[row * size + i] = (signed char)found;
    back[row * size + i] = to_half(mul(to_float(found), scale));
  }
}
"""
