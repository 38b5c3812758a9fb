"""CUDA kernels of sums of FP16 products (docs/numbers.md, 2 and 3.3)."""

from __future__ import annotations

KERNELS = ("half_products", "half_products_32", "half_scores", "join_products")
SOURCE = r"""
/* A block of 256 threads makes 16*EACH rows and 128 columns of outputs, each thread EACH x 8. Tiles
 * of STEP along K are widened into shared memory, the next one while the present one is used. */
enum { STEP = 16, COLUMNS = 128 };

template <int ROWS>
struct HalfTiles {
  alignas(16) float x[2][STEP][ROWS];
  alignas(16) float w[2][STEP][COLUMNS];
};

/* Neighbours in shared memory, read and written at once */
template <int N>
struct alignas(4 * N) Run {
  float at[N];
};
template <int N>
static __device__ void read_run(const float *from, float *to) {
  const Run<N> run = *(const Run<N> *)from;
  UNROLL
  for (int i = 0; i < N; i++) to[i] = run.at[i];
}

/* Where a thread's outputs lie: runs of RUN rows and of 4 columns, for whole reads of 16 bytes.
 * Lanes side by side differ in rows first: shared memory is read faster than row after row. */
template <int EACH>
struct Place {
  enum { RUN = EACH < 4 ? EACH : 4 };
  int row, column;
  __device__ Place() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row = (warp / 2 * 4 + lane / 16 * 2 + lane % 2) * RUN;
    column = (warp % 2 * 8 + lane / 2 % 8) * 4;
  }
  static __device__ int row_of(int i) { return i / RUN * 16 * RUN + i % RUN; }
  static __device__ int column_of(int j) { return j / 4 * 64 + j % 4; }
};

/* Rows with K contiguous: a thread has eight values of one row */
template <int ROWS>
static __device__ Eight read_rows(const unsigned short *x, size_t stride, int rows, int at, int k,
                                  bool aligned) {
  const int row = threadIdx.x % ROWS, first = at + threadIdx.x / ROWS * 8;
  const int count = row < rows ? k - first : 0;
  return eight(x + (row < rows ? row * stride + first : 0), count, aligned && count >= 8);
}
template <int ROWS>
static __device__ void keep_rows(float (*tile)[ROWS], const Eight &values) {
  const int row = threadIdx.x % ROWS, first = threadIdx.x / ROWS * 8;
  UNROLL
  for (int i = 0; i < 8; i++) tile[first + i][row] = values.value(i);
}

/* The same of w with columns contiguous: a thread has eight columns of one k */
static __device__ Eight read_columns(const unsigned short *w, int n, int column0, int at, int k,
                                     bool aligned) {
  const int first = at + threadIdx.x / 16, column = column0 + threadIdx.x % 16 * 8;
  const int count = first < k ? n - column : 0;
  return eight(w + (count > 0 ? (size_t)first * n + column : 0), count, aligned && count >= 8);
}
static __device__ void keep_columns(float (*tile)[COLUMNS], const Eight &values) {
  const int first = threadIdx.x / 16, column = threadIdx.x % 16 * 8;
  UNROLL
  for (int i = 0; i < 8; i += 4) {
    Run<4> run;
    UNROLL
    for (int j = 0; j < 4; j++) run.at[j] = values.value(i + j);
    *(Run<4> *)(tile[first] + column + i) = run;
  }
}

/* sum[i*8 + j] of a thread's outputs, one k after another */
template <int EACH>
static __device__ void add_tile(const float (*x)[16 * EACH], const float (*w)[COLUMNS],
                                const Place<EACH> &place, float *sum) {
  UNROLL
  for (int k = 0; k < STEP; k++) {
    float a[EACH], b[8];
    UNROLL
    for (int i = 0; i < EACH; i += Place<EACH>::RUN)
      read_run<Place<EACH>::RUN>(x[k] + place.row + place.row_of(i), a + i);
    UNROLL
    for (int j = 0; j < 8; j += 4) read_run<4>(w[k] + place.column + place.column_of(j), b + j);
    UNROLL
    for (int i = 0; i < EACH; i++)
      UNROLL
      for (int j = 0; j < 8; j++) sum[i * 8 + j] = mul_add(a[i], b[j], sum[i * 8 + j]);
  }
}

/* FP16 x[rows][k] from a block's first row on, and w: [k][n], or by rows [n][k] from its first
 * column on. What is not there is +0. */
struct HalfOperands {
  const unsigned short *x, *w;
  size_t x_stride, w_stride;
  int rows, k, n, column0;
  bool x_aligned, w_aligned;
};

static __device__ bool aligned(const void *at, size_t stride) {
  return (size_t)at % 16 == 0 && stride % 8 == 0;
}

template <int EACH, bool BY_ROWS>
struct HalfReader {
  const HalfOperands of;
  Eight x, w;
  __device__ HalfReader(const HalfOperands &given) : of(given) {}
  __device__ void read(int at) {
    if (threadIdx.x < 32 * EACH)
      x = read_rows<16 * EACH>(of.x, of.x_stride, of.rows, at, of.k, of.x_aligned);
    w = BY_ROWS ? read_rows<COLUMNS>(of.w, of.w_stride, of.n, at, of.k, of.w_aligned)
                : read_columns(of.w, of.n, of.column0, at, of.k, of.w_aligned);
  }
  __device__ void keep(HalfTiles<16 * EACH> &tiles, int buffer) {
    if (threadIdx.x < 32 * EACH) keep_rows<16 * EACH>(tiles.x[buffer], x);
    if (BY_ROWS)
      keep_rows<COLUMNS>(tiles.w[buffer], w);
    else
      keep_columns(tiles.w[buffer], w);
  }
};

/* The tree over segments first_segment .. first_segment + count - 1 of a thread's outputs */
template <int EACH, bool BY_ROWS>
static __device__ void half_sums(const HalfOperands &of, int first_segment, int count, float *sum) {
  __shared__ HalfTiles<16 * EACH> tiles;
  const Place<EACH> place;
  const int units = (of.k + UNIT - 1) / UNIT, steps = UNIT / STEP;
  const int last = segment_unit(first_segment + count, units) * steps;
  int tile = segment_unit(first_segment, units) * steps, buffer = 0;
  float level[3][EACH * 8];
  HalfReader<EACH, BY_ROWS> reader(of);
  if (tile < last) {
    reader.read(tile * STEP);
    reader.keep(tiles, buffer);
  }
  SYNC();
  UNROLL_NOT
  for (int segment = 0; segment < count; segment++) {
    const int end = segment_unit(first_segment + segment + 1, units) * steps;
    UNROLL
    for (int i = 0; i < EACH * 8; i++) sum[i] = 0.0f;
    UNROLL_NOT
    for (; tile < end; tile++) {
      const bool more = tile + 1 < last;
      if (more) reader.read((tile + 1) * STEP);
      add_tile<EACH>(tiles.x[buffer], tiles.w[buffer], place, sum);
      buffer ^= 1;
      if (more) reader.keep(tiles, buffer);
      SYNC();
    }
    tree_step<EACH * 8>(level, segment, sum);
  }
}

template <int EACH>
static __device__ void put_halves(float *y, int rows, int n, int row0, int column0,
                                  const float *sum) {
  const Place<EACH> place;
  UNROLL
  for (int i = 0; i < EACH; i++)
    UNROLL
    for (int j = 0; j < 8; j++) {
      const int row = row0 + place.row + place.row_of(i);
      const int column = column0 + place.column + place.column_of(j);
      if (row < rows && column < n) y[(size_t)row * n + column] = sum[i * 8 + j];
    }
}

/* y[part][rows][n] = trees over SEGMENTS/parts segments of FP16 x[rows][k] and w[k][n] (3.3) */
template <int EACH>
static __device__ void half_block(const unsigned short *x, const unsigned short *w, float *y,
                                  int rows, int k, int n, int parts) {
  const int row0 = blockIdx.y * 16 * EACH, column0 = blockIdx.x * COLUMNS;
  const unsigned short *first = x + (size_t)row0 * k;
  const HalfOperands of = {first,      w, (size_t)k, (size_t)n, rows - row0, k, n, column0,
                           aligned(first, k), aligned(w, n)};
  float sum[EACH * 8];
  const int count = SEGMENTS / parts;
  half_sums<EACH, false>(of, blockIdx.z * count, count, sum);
  put_halves<EACH>(y + (size_t)blockIdx.z * rows * n, rows, n, row0, column0, sum);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    half_products(const unsigned short *x, const unsigned short *w, float *y, int rows, int k,
                  int n, int parts) {
  half_block<8>(x, w, y, rows, k, n, parts);
}

/* The same with 32 rows a block, for prompts that have no more */
extern "C" __global__ void __launch_bounds__(256, 2)
    half_products_32(const unsigned short *x, const unsigned short *w, float *y, int rows, int k,
                     int n, int parts) {
  half_block<2>(x, w, y, rows, k, n, parts);
}

/* y[i] = the tree over parts[0 .. count-1][i]; count is 2, 4 or 8 */
extern "C" __global__ void join_products(const float *parts, float *y, int count, int size) {
  const int at = blockIdx.x * 256 + threadIdx.x;
  if (at >= size) return;
  float level[3][1], sum[1];
  for (int part = 0; part < count; part++) {
    sum[0] = parts[(size_t)part * size + at];
    tree_step<1>(level, part, sum);
  }
  y[at] = sum[0];
}

/* y[heads][rows][positions] = q.k before scaling (3.8) of q[rows][heads][size], rows `stride`
 * apart, and k[KV heads][positions][size], heads `k_stride` apart. Row r sees positions up to
 * first + r; blocks of which no row sees anything write nothing. */
extern "C" __global__ void __launch_bounds__(256, 2)
    half_scores(const unsigned short *q, const unsigned short *k, float *y, int rows, int stride,
                int size, int positions, int k_stride, int of_each, int first) {
  const int row0 = blockIdx.y * 128, column0 = blockIdx.x * COLUMNS, head = blockIdx.z;
  if (column0 > first + min(rows, row0 + 128) - 1) return;
  const unsigned short *x = q + (size_t)row0 * stride + (size_t)head * size;
  const unsigned short *w = k + (size_t)(head / of_each) * k_stride + (size_t)column0 * size;
  const HalfOperands of = {x,    w, (size_t)stride, (size_t)size, rows - row0, size,
                           positions - column0, 0, aligned(x, stride), aligned(w, size)};
  float sum[64];
  half_sums<8, true>(of, 0, SEGMENTS, sum);
  put_halves<8>(y + (size_t)head * rows * positions, rows, positions, row0, column0, sum);
}
"""
