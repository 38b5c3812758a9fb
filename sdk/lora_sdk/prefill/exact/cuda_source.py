"""CUDA kernels of the sums of matmuls, as a source that is compiled at run time. Without
`__CUDACC_RTC__` it is C++ for the host, which the tests run beside a shim of thread numbers."""

from __future__ import annotations

KERNELS = ("half_products", "byte_products", "group_products")
SOURCE = r"""
#ifdef __CUDACC_RTC__
#define SYNC() __syncthreads()
static __device__ float from_half(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
static __device__ float mul(float a, float b) { return __fmul_rn(a, b); }
static __device__ float add(float a, float b) { return __fadd_rn(a, b); }
/* FP16 values: their product is exact in FP32, so fusing changes no bit */
static __device__ float mul_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
static __device__ float to_float(int value) { return __int2float_rn(value); }
#endif

enum { UNIT = 32, SEGMENTS = 8 };

/* 2.1: the first unit of a segment of `units` units */
static __device__ int segment_unit(int segment, int units) { return segment * units / SEGMENTS; }

/* 2.2 as sums arrive: level[0..2] wait for their partners; the total is in `sum` after the last.
 * An empty segment adds +0, which changes no bit. */
static __device__ float tree_step(float *level, int segment, float sum) {
  for (int bit = 0; bit < 3; bit++) {
    if (!(segment >> bit & 1)) {
      level[bit] = sum;
      return sum;
    }
    sum = add(level[bit], sum);
  }
  return sum;
}

/* y[rows][n] = segsum of FP16 x[rows][k] and w[k][n] (3.3). A block of 256 threads makes 64 x 64
 * outputs, each thread 4 x 4; both tiles of a unit are widened into shared memory once. */
enum { TILE_ROWS = 64, TILE_COLUMNS = 64, EACH = 4 };

extern "C" __global__ void half_products(const unsigned short *x, const unsigned short *w, float *y,
                                         int rows, int k, int n) {
  __shared__ float xs[UNIT][TILE_ROWS];
  __shared__ float ws[UNIT][TILE_COLUMNS];
  const int thread = threadIdx.x, units = (k + UNIT - 1) / UNIT;
  const int row0 = blockIdx.y * TILE_ROWS, column0 = blockIdx.x * TILE_COLUMNS;
  const int row = thread / 16 * EACH, column = thread % 16 * EACH;
  float total[EACH][EACH], level[EACH][EACH][3];
  for (int segment = 0; segment < SEGMENTS; segment++) {
    float sum[EACH][EACH] = {{0.0f}};
    for (int unit = segment_unit(segment, units); unit < segment_unit(segment + 1, units); unit++) {
      for (int i = thread; i < UNIT * TILE_ROWS; i += 256) {
        const int at = unit * UNIT + i % UNIT, r = row0 + i / UNIT;
        xs[i % UNIT][i / UNIT] = r < rows && at < k ? from_half(x[(size_t)r * k + at]) : 0.0f;
      }
      for (int i = thread; i < UNIT * TILE_COLUMNS; i += 256) {
        const int at = unit * UNIT + i / TILE_COLUMNS, c = column0 + i % TILE_COLUMNS;
        ws[i / TILE_COLUMNS][i % TILE_COLUMNS] =
            c < n && at < k ? from_half(w[(size_t)at * n + c]) : 0.0f;
      }
      SYNC();
      for (int step = 0; step < UNIT; step++)
        for (int i = 0; i < EACH; i++)
          for (int j = 0; j < EACH; j++)
            sum[i][j] = mul_add(xs[step][row + i], ws[step][column + j], sum[i][j]);
      SYNC();
    }
    for (int i = 0; i < EACH; i++)
      for (int j = 0; j < EACH; j++) total[i][j] = tree_step(level[i][j], segment, sum[i][j]);
  }
  for (int i = 0; i < EACH; i++)
    for (int j = 0; j < EACH; j++)
      if (row0 + row + i < rows && column0 + column + j < n)
        y[(size_t)(row0 + row + i) * n + column0 + column + j] = total[i][j];
}

/* A warp's 16 x 8 exact INT32 sums over one unit. Lane l has rows l/4 and l/4 + 8, columns
 * l%4*2 and the next: sums[0], [1] and [2], [3]. x and w have k contiguous, in words of four. */
typedef struct {
  const int *x, *w; /* of the warp's first row and first column */
  int stride;       /* words from one row, or one column, to the next */
  int rows, columns;
} Operands;

static __device__ int word(const int *at, int stride, int index, int count, int k_word) {
  return index < count ? at[(size_t)index * stride + k_word] : 0;
}

static __device__ void unit_sums(const Operands *of, int lane, int k_word, int *sums) {
  const int group = lane / 4, member = lane % 4;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  int a[4], b[2];
  for (int i = 0; i < 4; i++) {
    const int row = group + i % 2 * 8;
    a[i] = word(of->x, of->stride, row, of->rows, k_word + member + i / 2 * 4);
  }
  for (int i = 0; i < 2; i++)
    b[i] = word(of->w, of->stride, group, of->columns, k_word + member + i * 4);
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  for (int i = 0; i < 4; i++)
    for (int at = k_word; at < k_word + UNIT / 4; at++)
      sums[i] = __dp4a(word(of->x, of->stride, group + i / 2 * 8, of->rows, at),
                       word(of->w, of->stride, member * 2 + i % 2, of->columns, at), sums[i]);
#endif
}

/* Blocks of 4 warps, each with 16 rows and 8 columns: 32 rows and 16 columns a block. */
static __device__ Operands warp_operands(const int *x, const int *w, int rows, int k, int n,
                                         int *row0, int *column0) {
  const int warp = threadIdx.x / 32, stride = k / 4;
  *row0 = blockIdx.y * 32 + warp / 2 * 16;
  *column0 = blockIdx.x * 16 + warp % 2 * 8;
  Operands of = {x + (size_t)*row0 * stride, w + (size_t)*column0 * stride, stride, rows - *row0,
                 n - *column0};
  return of;
}

static __device__ void put(float *y, int rows, int n, int row, int column, float value) {
  if (row < rows && column < n) y[(size_t)row * n + column] = value;
}

/* y[rows][n] = FP32(sum of int8 x[rows][k]*w[n][k]) (6.2); k is a multiple of 32 */
extern "C" __global__ void byte_products(const int *x, const int *w, float *y, int rows, int k,
                                         int n) {
  int row0, column0, sums[4] = {0, 0, 0, 0};
  const int lane = threadIdx.x % 32;
  const Operands of = warp_operands(x, w, rows, k, n, &row0, &column0);
  for (int unit = 0; unit < k / UNIT; unit++) unit_sums(&of, lane, unit * (UNIT / 4), sums);
  for (int i = 0; i < 4; i++)
    put(y, rows, n, row0 + lane / 4 + i / 2 * 8, column0 + lane % 4 * 2 + i % 2,
        to_float(sums[i]));
}

/* `total` of 6.3: int8 x[rows][k], w[n][k] = q4 - z, FP16 scales[k/group][n]; parts of groups end
 * with a group or a segment */
extern "C" __global__ void group_products(const int *x, const int *w, const unsigned short *scales,
                                          float *y, int rows, int k, int n, int group) {
  int row0, column0;
  const int lane = threadIdx.x % 32, units = k / UNIT, of_group = group / UNIT;
  const Operands of = warp_operands(x, w, rows, k, n, &row0, &column0);
  float total[4], level[4][3];
  for (int segment = 0; segment < SEGMENTS; segment++) {
    const int end = segment_unit(segment + 1, units);
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    int part[4] = {0, 0, 0, 0};
    for (int unit = segment_unit(segment, units); unit < end; unit++) {
      unit_sums(&of, lane, unit * (UNIT / 4), part);
      if (unit + 1 < end && (unit + 1) % of_group) continue;
      for (int i = 0; i < 4; i++) {
        const int column = column0 + lane % 4 * 2 + i % 2;
        if (column < n) {
          const float scale = from_half(scales[(size_t)(unit / of_group) * n + column]);
          sum[i] = add(sum[i], mul(to_float(part[i]), scale));
        }
        part[i] = 0;
      }
    }
    for (int i = 0; i < 4; i++) total[i] = tree_step(level[i], segment, sum[i]);
  }
  for (int i = 0; i < 4; i++)
    put(y, rows, n, row0 + lane / 4 + i / 2 * 8, column0 + lane % 4 * 2 + i % 2, total[i]);
}
"""
