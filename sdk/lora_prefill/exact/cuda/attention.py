"""CUDA kernels of attention behind q.k (docs/numbers.md, 3.8 and 6.6)."""

from __future__ import annotations

KERNELS = ("attention_weights", "attention_weights_int8", "weighted_values")
SOURCE = r"""
enum { POSITIONS_AT_ONCE = 256 };

/* A block of 256 threads has a row of a head. Its `scores` [heads][rows][positions] are times
 * `scale`. Row r sees positions up to first + r, with a window no more than that many. */
struct Seen {
  const float *scores;
  int from, own, positions;
  float scale;
  __device__ Seen(const float *all, int rows, int count, int first, int window, float factor) {
    scores = all + ((size_t)blockIdx.y * rows + blockIdx.x) * count;
    own = first + blockIdx.x;
    from = window ? max(0, own - window + 1) : 0;
    positions = count;
    scale = factor;
  }
  __device__ bool sees(int position) const { return position >= from && position <= own; }
  __device__ float score(int position) const { return mul(scores[position], scale); }
  __device__ float largest() const;
};

__device__ float Seen::largest() const {
  __shared__ float each[POSITIONS_AT_ONCE];
  float most = -of_bits(0x7f800000);
  for (int at = from + threadIdx.x; at <= own; at += POSITIONS_AT_ONCE)
    most = fmaxf(most, score(at));
  each[threadIdx.x] = most;
  for (int half = POSITIONS_AT_ONCE / 2; half; half /= 2) {
    SYNC();
    if (threadIdx.x < half) each[threadIdx.x] = fmaxf(each[threadIdx.x], each[threadIdx.x + half]);
  }
  SYNC();
  return each[0];
}

/* e[heads][rows][positions], 0 where a row does not see, and sums[heads][rows] = E */
extern "C" __global__ void attention_weights(const float *scores, unsigned short *e, float *sums,
                                             int rows, int positions, int first, int window,
                                             float scale) {
  __shared__ float tile_sums[CHUNK_TILES];
  const Seen seen(scores, rows, positions, first, window, scale);
  const size_t row = (size_t)blockIdx.y * rows + blockIdx.x;
  unsigned short *own = e + row * positions;
  const float most = seen.largest();
  for (int at = threadIdx.x; at < positions; at += POSITIONS_AT_ONCE)
    own[at] = seen.sees(at) ? to_half(exponential(add(seen.score(at), -most))) : (unsigned short)0;
  const int tiles = seen.own / UNIT + 1;
  float total = 0.0f;
  for (int chunk = 0; chunk < tiles; chunk += CHUNK_TILES) {
    const int count = min(CHUNK_TILES, tiles - chunk);
    SYNC();
    for (int tile = threadIdx.x; tile < count; tile += POSITIONS_AT_ONCE) {
      float sum = 0.0f;
      for (int at = 0; at < UNIT; at++) sum = add(sum, from_half(own[(chunk + tile) * UNIT + at]));
      tile_sums[tile] = sum;
    }
    SYNC();
    float sum = 0.0f;
    if (threadIdx.x == 0)
      for (int tile = 0; tile < count; tile++) sum = add(sum, tile_sums[tile]);
    total = add(total, sum);
  }
  if (threadIdx.x == 0) sums[row] = total;
}

/* The same of 6.6: e8, whose sums are exact */
extern "C" __global__ void attention_weights_int8(const float *scores, signed char *e, float *sums,
                                                  int rows, int positions, int first, int window,
                                                  float scale) {
  __shared__ int each[POSITIONS_AT_ONCE];
  const Seen seen(scores, rows, positions, first, window, scale);
  const size_t row = (size_t)blockIdx.y * rows + blockIdx.x;
  const float most = seen.largest();
  int sum = 0;
  for (int at = threadIdx.x; at < positions; at += POSITIONS_AT_ONCE) {
    const float weight = exponential(add(seen.score(at), -most));
    const int found = seen.sees(at) ? to_int(mul(weight, 127.0f)) : 0;
    e[row * positions + at] = (signed char)found;
    sum += found;
  }
  each[threadIdx.x] = sum;
  for (int half = POSITIONS_AT_ONCE / 2; half; half /= 2) {
    SYNC();
    if (threadIdx.x < half) each[threadIdx.x] += each[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[row] = to_float(each[0]);
}

/* What a thread of weighted_values adds: 4 x 8 outputs, a tile of positions, then the chunk's, then
 * all chunks' */
struct Weighted {
  float tile[32], chunk[32], total[32];
  __device__ Weighted() {
    UNROLL
    for (int i = 0; i < 32; i++) tile[i] = chunk[i] = total[i] = 0.0f;
  }
  __device__ void end_tile() {
    UNROLL
    for (int i = 0; i < 32; i++) {
      chunk[i] = add(chunk[i], tile[i]);
      tile[i] = 0.0f;
    }
  }
  __device__ void end_chunk() {
    UNROLL
    for (int i = 0; i < 32; i++) {
      total[i] = add(total[i], chunk[i]);
      chunk[i] = 0.0f;
    }
  }
};

/* FP16 y[rows][heads][size] = A/E (3.8) of e[heads][rows][positions], v[KV heads][positions][size],
 * heads `v_stride` apart, and E = sums[heads][rows]. 64 rows and 128 columns a block. */
extern "C" __global__ void __launch_bounds__(256, 2)
    weighted_values(const unsigned short *e, const unsigned short *v, const float *sums,
                    unsigned short *y, int rows, int size, int positions, int v_stride,
                    int of_each, int first) {
  __shared__ HalfTiles<64> tiles;
  const int row0 = blockIdx.y * 64, column0 = blockIdx.x * COLUMNS, head = blockIdx.z;
  const unsigned short *x = e + ((size_t)head * rows + row0) * positions;
  const unsigned short *w = v + (size_t)(head / of_each) * v_stride;
  const HalfOperands of = {x,    w,    (size_t)positions, (size_t)size, rows - row0, positions,
                           size, column0, aligned(x, positions), aligned(w, size)};
  const Place<4> place;
  const int units = (first + min(rows, row0 + 64) - 1) / UNIT + 1; /* that a row sees */
  HalfReader<4, false> reader(of);
  Weighted found;
  reader.read(0);
  reader.keep(tiles, 0);
  SYNC();
  UNROLL_NOT
  for (int unit = 0; unit < units; unit++) {
    UNROLL
    for (int half = 0; half < 2; half++) {
      const bool more = half == 0 || unit + 1 < units;
      if (more) reader.read(unit * UNIT + (half + 1) * STEP);
      add_tile<4>(tiles.x[half], tiles.w[half], place, found.tile);
      if (more) reader.keep(tiles, half ^ 1);
      SYNC();
    }
    found.end_tile();
    if ((unit + 1) % CHUNK_TILES == 0) found.end_chunk();
  }
  found.end_chunk(); /* of no tiles it adds +0 */
  UNROLL
  for (int i = 0; i < 4; i++)
    UNROLL
    for (int j = 0; j < 8; j++) {
      const int row = row0 + place.row + place.row_of(i);
      const int column = column0 + place.column + place.column_of(j);
      if (row < rows && column < size)
        y[((size_t)row * gridDim.z + head) * size + column] =
            to_half(quotient(found.total[i * 8 + j], sums[(size_t)head * rows + row]));
    }
}
"""
