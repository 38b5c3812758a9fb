"""CUDA kernels of sums of INT8 products (docs/numbers.md, 6.2 and 6.3)."""

from __future__ import annotations

KERNELS = ("byte_products", "byte_products_32", "byte_heads", "join_bytes")
SOURCE = r"""
/* Integer tensor cores, and copies to shared memory that go on beside them */
#ifdef __CUDACC_RTC__
#if __CUDA_ARCH__ >= 800
#define TENSOR_CORES
static __device__ void copy_16(void *to, const void *from, bool there) {
  const unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
}
#define COPIES_END() asm volatile("cp.async.commit_group;" ::: "memory")
#define COPIES_WAIT() asm volatile("cp.async.wait_group 1;" ::: "memory") /* all but the latest */
static __device__ void tensor_sums(const int *a, const int *b, int *sums) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
               "{%8,%9}, {%0,%1,%2,%3};"
               : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
static __device__ void copy_16(void *to, const void *from, bool there) {
  const Words none = {{0, 0, 0, 0}};
  *(Words *)to = there ? *(const Words *)from : none;
}
#define COPIES_END()
#define COPIES_WAIT()
#endif
#endif

/* A block of 256 threads makes ROWS x 128 outputs. Tiles of two units along K, 64 bytes a row, go
 * round in shared memory: two are on their way while a third is used. The 16-byte parts of a row
 * are swapped by its number, so that the lanes of a warp read from different banks. */
enum { TILE_BYTES = 64, TILES = 3, WIDTH = 128 };

template <int ROWS>
struct ByteTiles {
  alignas(16) signed char x[TILES][ROWS * TILE_BYTES];
  alignas(16) signed char w[TILES][WIDTH * TILE_BYTES];
};

static __device__ int swapped(int row, int part) {
  return row * TILE_BYTES + (part ^ (row >> 1 & 3)) * 16;
}

/* int8 x[rows][k] and w[columns][k] from a block's first row and column on; k a multiple of 32 */
struct ByteOperands {
  const signed char *x, *w;
  size_t x_stride, w_stride;
  int rows, columns, k;
};

/* What a thread copies of COUNT rows: the same 16-byte part of each 64th, whose places are found
 * once */
template <int COUNT>
struct RowCopies {
  enum { STRIDE = 64, EACH = COUNT < STRIDE ? 1 : COUNT / STRIDE };
  const signed char *from[EACH];
  bool there[EACH];
  int to, first; /* place in a tile, and along K */

  __device__ RowCopies(const signed char *rows, size_t stride, int count) {
    const int row = threadIdx.x / 4, part = threadIdx.x % 4;
    to = swapped(row, part);
    first = part * 16;
    UNROLL
    for (int i = 0; i < EACH; i++) {
      there[i] = row + i * STRIDE < min(COUNT, count);
      from[i] = there[i] ? rows + (row + i * STRIDE) * stride + first : rows;
    }
  }
  __device__ void copy(signed char *tile, int at, int k) const {
    if (COUNT < STRIDE && threadIdx.x / 4 >= COUNT) return;
    const bool inside = at + first < k;
    UNROLL
    for (int i = 0; i < EACH; i++) {
      const bool found = inside && there[i];
      copy_16(tile + to + i * STRIDE * TILE_BYTES, found ? from[i] + at : from[i], found);
    }
  }
};

/* What a warp makes: DEEP x WIDE blocks of 16 x 8 outputs. Lane l has of each rows l/4 and l/4 + 8,
 * columns l%4*2 and the next: its sums 0, 1 and 2, 3. */
template <int ROWS>
struct Share {
  enum { DOWN = ROWS / 64 ? 2 : 1, ACROSS = 8 / DOWN };    /* warps of a block */
  enum { DEEP = ROWS / DOWN / 16, WIDE = WIDTH / ACROSS / 8, SUMS = DEEP * WIDE * 4 };
  int row, column; /* the first of the warp */
  __device__ Share() {
    const int warp = threadIdx.x / 32;
    row = warp / ACROSS * (DEEP * 16);
    column = warp % ACROSS * (WIDE * 8);
  }
  /* of output i */
  __device__ int row_of(int i) const {
    return row + i / 4 / WIDE * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8;
  }
  __device__ int column_of(int i) const {
    return column + i / 4 % WIDE * 8 + threadIdx.x % 4 * 2 + i % 2;
  }
};

static __device__ int word(const signed char *tile, int row, int part, int index) {
  return *(const int *)(tile + swapped(row, part) + index * 4);
}

/* Adds a tile's unit, 0 or 1, to a thread's exact sums */
template <int ROWS>
static __device__ void unit_sums(const signed char *x, const signed char *w, int unit,
                                 const Share<ROWS> &share, int *sums) {
  enum { DEEP = Share<ROWS>::DEEP, WIDE = Share<ROWS>::WIDE };
#ifdef TENSOR_CORES
  const int group = threadIdx.x % 32 / 4, member = threadIdx.x % 4;
  int a[DEEP][4], b[WIDE][2];
  UNROLL
  for (int i = 0; i < DEEP; i++)
    UNROLL
    for (int j = 0; j < 4; j++)
      a[i][j] = word(x, share.row + i * 16 + group + j % 2 * 8, unit * 2 + j / 2, member);
  UNROLL
  for (int i = 0; i < WIDE; i++)
    UNROLL
    for (int j = 0; j < 2; j++)
      b[i][j] = word(w, share.column + i * 8 + group, unit * 2 + j, member);
  UNROLL
  for (int i = 0; i < DEEP; i++)
    UNROLL
    for (int j = 0; j < WIDE; j++) tensor_sums(a[i], b[j], sums + (i * WIDE + j) * 4);
#else
  for (int at = 0; at < UNIT / 4; at++)
    UNROLL
    for (int i = 0; i < Share<ROWS>::SUMS; i++)
      sums[i] = __dp4a(word(x, share.row_of(i), unit * 2 + at / 4, at % 4),
                       word(w, share.column_of(i), unit * 2 + at / 4, at % 4), sums[i]);
#endif
}

/* The units first .. end-1, one after another; `then(unit)` is called after each */
template <int ROWS, typename Then>
static __device__ void run_units(const ByteOperands &of, int first, int end, int *sums,
                                 Then &then) {
  __shared__ ByteTiles<ROWS> tiles;
  const Share<ROWS> share;
  const RowCopies<ROWS> rows(of.x, of.x_stride, of.rows);
  const RowCopies<WIDTH> columns(of.w, of.w_stride, of.columns);
  int tile = 0, next = 0; /* which are read, and copied */
  UNROLL_NOT
  for (int unit = first - 4; unit < end; unit += 2) {
    const int at = (unit + 4) * UNIT;
    if (unit >= first) {
      COPIES_WAIT();
      SYNC(); /* the tile is there, and nobody reads the one that is replaced next */
    }
    if (at < end * UNIT) {
      rows.copy(tiles.x[next], at, of.k);
      columns.copy(tiles.w[next], at, of.k);
      next = next + 1 == TILES ? 0 : next + 1;
    }
    COPIES_END();
    if (unit < first) continue;
    const signed char *x = tiles.x[tile], *w = tiles.w[tile];
    tile = tile + 1 == TILES ? 0 : tile + 1;
    unit_sums(x, w, 0, share, sums);
    then(unit);
    if (unit + 1 < end) {
      unit_sums(x, w, 1, share, sums);
      then(unit + 1);
    }
  }
}

template <int ROWS>
static __device__ void put_sums(float *y, int rows, int n, int row0, int column0,
                                const float *sums) {
  const Share<ROWS> share;
  UNROLL
  for (int i = 0; i < Share<ROWS>::SUMS; i++) {
    const int row = row0 + share.row_of(i), column = column0 + share.column_of(i);
    if (row < rows && column < n) y[(size_t)row * n + column] = sums[i];
  }
}

struct Nothing {
  __device__ void operator()(int) {}
};

/* y[part][rows][n] = the sums of int8 x[rows][k]*w[n][k] over SEGMENTS/parts segments: FP32 where
 * that is all (6.2), else as bits of integers, which join_bytes adds */
template <int ROWS>
static __device__ void byte_block(const signed char *x, const signed char *w, float *y, int rows,
                                  int k, int n, int parts) {
  const int row0 = blockIdx.y * ROWS, column0 = blockIdx.x * WIDTH, count = SEGMENTS / parts;
  const ByteOperands of = {x + (size_t)row0 * k, w + (size_t)column0 * k, (size_t)k, (size_t)k,
                           rows - row0, n - column0, k};
  int sums[Share<ROWS>::SUMS] = {0};
  float found[Share<ROWS>::SUMS];
  Nothing nothing;
  run_units<ROWS>(of, segment_unit(blockIdx.z * count, k / UNIT),
                  segment_unit((blockIdx.z + 1) * count, k / UNIT), sums, nothing);
  UNROLL
  for (int i = 0; i < Share<ROWS>::SUMS; i++)
    found[i] = parts == 1 ? to_float(sums[i]) : of_bits(sums[i]);
  put_sums<ROWS>(y + (size_t)blockIdx.z * rows * n, rows, n, row0, column0, found);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    byte_products(const signed char *x, const signed char *w, float *y, int rows, int k, int n,
                  int parts) {
  byte_block<128>(x, w, y, rows, k, n, parts);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    byte_products_32(const signed char *x, const signed char *w, float *y, int rows, int k, int n,
                     int parts) {
  byte_block<32>(x, w, y, rows, k, n, parts);
}

/* y[i] = FP32(the sum of parts[..][i]) */
extern "C" __global__ void join_bytes(const int *parts, float *y, int count, int size) {
  const int at = blockIdx.x * 256 + threadIdx.x;
  int sum = 0;
  if (at >= size) return;
  for (int part = 0; part < count; part++) sum += parts[(size_t)part * size + at];
  y[at] = to_float(sum);
}

/* y[head][rows][n] = FP32(sum of int8 x[rows][k]*w[n][k]), the rows of x `x_row` and the heads
 * `x_head` bytes apart, w that of the KV head, `w_head` bytes apart. Row r sees positions up to
 * first + r. `over_columns`: these are the columns, and blocks of which no row sees anything write
 * nothing; else they are k, and x is 0 where a row does not see them. */
extern "C" __global__ void __launch_bounds__(256, 2)
    byte_heads(const signed char *x, const signed char *w, float *y, int rows, int k, int n,
               int x_row, int x_head, int w_head, int of_each, int over_columns,
               int first) {
  const int row0 = blockIdx.y * 128, column0 = blockIdx.x * WIDTH, head = blockIdx.z;
  const int last = first + min(rows, row0 + 128) - 1;
  if (over_columns && column0 > last) return;
  const ByteOperands of = {x + (size_t)row0 * x_row + (size_t)head * x_head,
                           w + (size_t)(head / of_each) * w_head + (size_t)column0 * k,
                           (size_t)x_row, (size_t)k, rows - row0, n - column0, k};
  int sums[Share<128>::SUMS] = {0};
  float found[Share<128>::SUMS];
  const int units = (over_columns ? k : min(k, last + UNIT)) / UNIT;
  Nothing nothing;
  run_units<128>(of, 0, units, sums, nothing);
  UNROLL
  for (int i = 0; i < Share<128>::SUMS; i++) found[i] = to_float(sums[i]);
  put_sums<128>(y + (size_t)head * rows * n, rows, n, row0, column0, found);
}
"""
