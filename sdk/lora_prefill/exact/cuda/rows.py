"""CUDA kernels of rows: sums for norms, and activations (docs/numbers.md, 3.4, 3.5 and 3.10)."""

from __future__ import annotations

KERNELS = ("row_squares", "row_moments", "row_rms_norm", "gated_silu")
SOURCE = r"""
/* A block of 64 threads has eight rows, a thread one segment of one of them */
enum { BLOCK_ROWS = 8 };

struct Row {
  const unsigned short *x;
  int row, segment, begin, end; /* columns of the segment */
  bool vectors;
  __device__ Row(const unsigned short *all, int k, int which) {
    row = which;
    segment = threadIdx.x % SEGMENTS;
    x = all + (size_t)row * k;
    begin = min(k, segment_unit(segment, (k + UNIT - 1) / UNIT) * UNIT);
    end = min(k, segment_unit(segment + 1, (k + UNIT - 1) / UNIT) * UNIT);
    vectors = (size_t)x % 16 == 0;
  }
  /* `then` of each column, one after another */
  template <typename Then>
  __device__ void each(Then &then) const {
    for (int at = begin; at < end; at += UNIT) {
      const int count = min((int)UNIT, end - at);
      Eight values[UNIT / 8]; /* a unit at once, since each read takes long */
      UNROLL
      for (int i = 0; i < UNIT / 8; i++)
        values[i] = eight(x + at + i * 8, count - i * 8, vectors && count >= i * 8 + 8);
      UNROLL
      for (int i = 0; i < UNIT; i++)
        if (i < count) then(values[i / 8].value(i % 8));
    }
  }
};

struct Squares {
  float sum;
  __device__ void operator()(float x) { sum = mul_add(x, x, sum); }
};
struct Total {
  float sum;
  __device__ void operator()(float x) { sum = add(sum, x); }
};
struct Spread {
  float mean, sum;
  __device__ void operator()(float x) {
    const float off = add(x, -mean);
    sum = add(sum, mul(off, off));
  }
};

/* 2.2 */
static __device__ float tree_of(const float *s) {
  return add(add(add(s[0], s[1]), add(s[2], s[3])), add(add(s[4], s[5]), add(s[6], s[7])));
}

/* y[rows] = segsum of squares of FP16 x[rows][k] */
extern "C" __global__ void row_squares(const unsigned short *x, float *y, int rows, int k) {
  __shared__ float sums[BLOCK_ROWS][SEGMENTS];
  const Row row(x, k, blockIdx.x * BLOCK_ROWS + threadIdx.x / SEGMENTS);
  Squares squares = {0.0f};
  if (row.row < rows) row.each(squares);
  sums[threadIdx.x / SEGMENTS][row.segment] = squares.sum;
  SYNC();
  if (row.segment || row.row >= rows) return;
  y[row.row] = tree_of(sums[threadIdx.x / SEGMENTS]);
}

/* FP16 y[rows][k] = (x*r)*gamma (3.5), r = above/sqrt(S/k + eps), a block of 128 threads a row.
 * Without a gamma it is 1. */
extern "C" __global__ void row_rms_norm(const unsigned short *x, const float *gamma, float eps,
                                        float above, unsigned short *y, int k) {
  __shared__ float sums[SEGMENTS];
  const Row row(x, k, blockIdx.x);
  if (threadIdx.x < SEGMENTS) {
    Squares squares = {0.0f};
    row.each(squares);
    sums[row.segment] = squares.sum;
  }
  SYNC();
  const float r = quotient(above, root(add(quotient(tree_of(sums), to_float(k)), eps)));
  for (int at = threadIdx.x; at < k; at += 128) {
    const float scaled = mul(from_half(row.x[at]), r);
    y[(size_t)row.row * k + at] = to_half(gamma ? mul(scaled, gamma[at]) : scaled);
  }
}

/* T, Q and the number of columns of segments (3.4) */
struct Moments {
  float total, square;
  int columns;
};

static __device__ Moments merged(const Moments &a, const Moments &b) {
  if (!a.columns) return b;
  if (!b.columns) return a;
  const float left = quotient(a.total, to_float(a.columns));
  const float delta = add(quotient(b.total, to_float(b.columns)), -left);
  const float weight =
      quotient(to_float(a.columns * b.columns), to_float(a.columns + b.columns));
  const float square = add(add(a.square, b.square), mul(mul(delta, delta), weight));
  const Moments found = {add(a.total, b.total), square, a.columns + b.columns};
  return found;
}

/* totals[rows], squares[rows] = T and Q of FP16 x[rows][k] */
extern "C" __global__ void row_moments(const unsigned short *x, float *totals, float *squares,
                                       int rows, int k) {
  __shared__ Moments found[BLOCK_ROWS][SEGMENTS];
  const Row row(x, k, blockIdx.x * BLOCK_ROWS + threadIdx.x / SEGMENTS);
  Moments *own = found[threadIdx.x / SEGMENTS];
  if (row.row < rows) {
    Total total = {0.0f};
    row.each(total);
    const int columns = row.end - row.begin;
    Spread spread = {columns ? quotient(total.sum, to_float(columns)) : 0.0f, 0.0f};
    row.each(spread);
    const Moments one = {total.sum, spread.sum, columns};
    own[row.segment] = one;
  }
  SYNC();
  if (row.segment || row.row >= rows) return;
  const Moments whole = merged(merged(merged(own[0], own[1]), merged(own[2], own[3])),
                               merged(merged(own[4], own[5]), merged(own[6], own[7])));
  totals[row.row] = whole.total;
  squares[row.row] = whole.square;
}

/* FP16 y[rows][n] = silu(g)*u of x[rows][2*n], g and u side by side (3.10) */
extern "C" __global__ void gated_silu(const unsigned short *x, unsigned short *y, int rows, int n) {
  const int column = blockIdx.x * 256 + threadIdx.x, row = blockIdx.y;
  if (column >= n) return;
  const unsigned short *of = x + (size_t)row * 2 * n;
  const float gate = from_half(of[column]), up = from_half(of[n + column]);
  const float silu = quotient(gate, add(exponential(-gate), 1.0f));
  y[(size_t)row * n + column] = to_half(mul(silu, up));
}
"""
