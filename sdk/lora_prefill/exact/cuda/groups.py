"""CUDA kernels of sums of INT8 products in groups with scales of their own (docs/numbers.md, 6.3).
The sums themselves are those of integers.py."""

from __future__ import annotations

KERNELS = ("group_products", "group_products_32")
SOURCE = r"""
/* A part's sum begins at this integer, whose bits are 1.5*2^23 in FP32. Below 2^22 the bits
 * are those of 1.5*2^23 plus the sum, exactly, which spares the slow conversion of integers. */
enum { PART_ZERO = 0x4b400000 };
static __device__ float part_sum(int bits) { return add(of_bits(bits), -12582912.0f); }

/* FP16 [k/group][n] from a block's first column on, of which `columns` are there; `units` of K */
struct GroupScales {
  const unsigned short *of;
  int n, columns, units, of_group;
};

/* What a thread does with its sums after each unit */
template <int ROWS>
struct Groups {
  enum { SUMS = Share<ROWS>::SUMS, SCALES = Share<ROWS>::WIDE * 2 };
  const GroupScales scales;
  const int first_segment, count;
  const Share<ROWS> share;
  int segment;              /* of the block's `count` */
  int end, left;            /* its end, and the rest of the present group, in units */
  const unsigned short *row; /* of the scales of the next group */
  int part[SUMS];           /* of the present part of a group */
  float sum[SUMS];          /* of the present segment, at last of the tree */
  unsigned short scale[SCALES]; /* of the present group */
  float (*const level)[SUMS];   /* of the tree; apart, or all of this would leave registers */

  __device__ Groups(const GroupScales &given, int first, int segments, float (*levels)[SUMS])
      : scales(given), first_segment(first), count(segments), segment(0), level(levels) {
    const int unit = segment_unit(first, given.units);
    end = segment_unit(first + 1, given.units);
    row = scales.of + (size_t)(unit / scales.of_group) * scales.n;
    UNROLL
    for (int i = 0; i < SUMS; i++) sum[i] = 0.0f, part[i] = PART_ZERO;
    begin_group(unit);
    left -= unit % scales.of_group;
    end_segments(unit);
  }

  __device__ void begin_group(int unit) {
    left = scales.of_group;
    UNROLL
    for (int i = 0; i < SCALES; i++) {
      const int column = share.column_of(i / 2 * 4 + i % 2);
      scale[i] = column < scales.columns && unit < scales.units ? row[column] : (unsigned short)0;
    }
    row += scales.n;
  }

  /* those that end before `unit`: the present one, and empty ones behind it */
  __device__ void end_segments(int unit) {
    UNROLL_NOT
    while (segment < count && end == unit) {
      tree_step<SUMS>(level, segment, sum);
      if (++segment == count) return;
      end = segment_unit(first_segment + segment + 1, scales.units);
      UNROLL
      for (int i = 0; i < SUMS; i++) sum[i] = 0.0f;
    }
  }

  __device__ void operator()(int unit) {
    const int next = unit + 1;
    left--;
    if (next < end && left) return;
    UNROLL
    for (int i = 0; i < SUMS; i++) {
      const float factor = from_half(scale[i / 4 % Share<ROWS>::WIDE * 2 + i % 2]);
      sum[i] = add(sum[i], mul(part_sum(part[i]), factor));
      part[i] = PART_ZERO;
    }
    if (!left) begin_group(next);
    end_segments(next);
  }
};

/* y[part][rows][n] = trees over SEGMENTS/parts segments each of `total` of 6.3: int8 x[rows][k],
 * w[n][k] = q4 - z, FP16 scales[k/group][n] */
template <int ROWS>
static __device__ void group_block(const signed char *x, const signed char *w,
                                   const unsigned short *scales, float *y, int rows, int k, int n,
                                   int group, int parts) {
  const int row0 = blockIdx.y * ROWS, column0 = blockIdx.x * WIDTH, count = SEGMENTS / parts;
  const int first = blockIdx.z * count, units = k / UNIT;
  const ByteOperands of = {x + (size_t)row0 * k, w + (size_t)column0 * k, (size_t)k, (size_t)k,
                           rows - row0, n - column0, k};
  const GroupScales given = {scales + column0, n, n - column0, units, group / UNIT};
  float level[3][Groups<ROWS>::SUMS];
  Groups<ROWS> groups(given, first, count, level);
  run_units<ROWS>(of, segment_unit(first, units), segment_unit(first + count, units), groups.part,
                  groups);
  put_sums<ROWS>(y + (size_t)blockIdx.z * rows * n, rows, n, row0, column0, groups.sum);
}

extern "C" __global__ void __launch_bounds__(256, 1)
    group_products(const signed char *x, const signed char *w, const unsigned short *scales,
                   float *y, int rows, int k, int n, int group, int parts) {
  group_block<128>(x, w, scales, y, rows, k, n, group, parts);
}

extern "C" __global__ void __launch_bounds__(256, 2)
    group_products_32(const signed char *x, const signed char *w, const unsigned short *scales,
                      float *y, int rows, int k, int n, int group, int parts) {
  group_block<32>(x, w, scales, y, rows, k, n, group, parts);
}
"""
