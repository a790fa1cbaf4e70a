// First thresholds: for every query a filter value below which no key can be among its k best, from a sample of the
// keys; how many keys it must visit; and an order of the queries by that.
#pragma once
#include "order.cuh"
#include "ranking.cuh"

// What a warp keeps of its queries in shared memory.
template <int COUNT> struct Rows {
  Units units[COUNT];
  float threshold[COUNT];
  int row[COUNT];         // of the queries, or -1
  int count[COUNT][4];    // candidates in each list
};

// Queries first .. first + 16 TILE_COUNT - 1 of a graph: FP16 operands in registers (words of rows lane / 4 and 8
// further down in turn), the rest in `rows`. `sign` is that of the margin: 0x8000 makes products lower bounds of x,
// 0 upper bounds.
template <int TILE_COUNT>
DEVICE void load_queries(const Search& s, int h, int g, int first, bool ordered, uint32_t sign,
                         uint32_t (&a)[TILE_COUNT][WORDS], Rows<16 * TILE_COUNT>& rows) {
  int lane = threadIdx.x % 32;
  long long segment = h * s.graph_count + g;
  Graph graph = graph_at(s, g);
  const float *centre = s.centre + segment * DIM, *queries = s.queries + h * s.query_count * DIM;
  double key_power = norm_power(s.longest[segment]) / NORM_UNIT;
#pragma unroll
  for (int m = 0; m < TILE_COUNT; m++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int r = m * 16 + half * 8 + lane / 4, at = first + r, row = -1;
      if (at < graph.queries)
        row = ordered ? s.query_order[h * s.query_count + graph.first_query + at] : graph.first_query + at;
      float value[UNITS][2];
      double square = 0, along = 0, middle = 0;  // |query|^2, query centre, |centre|^2: a quarter of each
#pragma unroll
      for (int u = 0; u < UNITS; u++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
          int c = u * 8 + lane % 4 * 2 + j;
          value[u][j] = row >= 0 && c < DIM ? queries[(long long)row * DIM + c] : 0.0f;
          double from = c < DIM ? centre[c] : 0.0f;
          square += (double)value[u][j] * value[u][j];
          along += value[u][j] * from;
          middle += from * from;
        }
#pragma unroll
      for (int other = 1; other <= 2; other++) {
        square += __shfl_xor_sync(FULL, square, other);
        along += __shfl_xor_sync(FULL, along, other);
        middle += __shfl_xor_sync(FULL, middle, other);
      }
      // A query that the next search refuses gets no keys and no work: all of them would be candidates.
      bool finite = square < 1e300, works = finite && s.longest[segment] < 0x7f800000u;
      if (!finite) *s.not_finite = 1;
      if (!works) square = along = 0;
      double norm = sqrt(square), power = query_power(norm), factor = power * key_power;
      float length = __double2float_ru(norm * power * (1 + POWER(-20)));
#pragma unroll
      for (int u = 0; u < UNITS; u++) {
        uint32_t word = 0;
#pragma unroll
        for (int j = 0; j < 2; j++) {
          uint32_t bits = works ? half_nearest((float)(value[u][j] * power)) : 0;
          if (u * 8 + lane % 4 * 2 + j == DIM) bits = half_above(__double2float_ru(slack() * length)) | sign;
          word |= bits << (16 * j);
        }
        a[m][u * 2 + half] = word;
      }
      if (lane % 4 == 0) {
        rows.row[r] = row;
        float error = __double2float_ru(min(3e38, length * sqrt(middle) * key_power * (DIM * POWER(-50))));
        rows.units[r] = {factor, along * factor, works ? length : -1, error};
      }
    }
  __syncwarp();
}

// The filter value below which nothing can beat or tie with a key of this score.
DEVICE float floor_of_score(float score, const Units& u) {
  return floor_below(max(-LARGEST * 2, min(LARGEST, (double)score)) * u.factor - u.offset, u);
}

// ---- a sample ----------------------------------------------------------------------------------------------
#define SAMPLE_TILES (SPLIT > 1 && TILES > 2 ? 2 : TILES)
#define SAMPLE_WARPS (SPLIT == 1 ? 4 : SPLIT)
#define SETS 4                      // of 8 keys: a warp reads two batches a step
#define GROUPS (SPLIT * SETS * 8)   // key i of a step belongs to group i of its warp
// Products begin here: positive floats are ordered as integers are. Twice the largest |q||k'|, which is below 32.
#define BIAS 64.0f
#define LOWEST_SUM 0x42000000       // bits of 32.0: sums lie in (32, 96), which are 2^24 integers

// Lower bound on x from the bits of a sum; 0: none.
DEVICE float floor_of_sum(int bits, const Units& u) {
  if (!bits) return NEVER;
  double x = (double)__int_as_float(bits) - BIAS - (WIDTH + 4) * 128.0 / (1 << 22);
  if (!MARGIN_COLUMN) x -= slack() * u.length * 16;
  return floor_below(x, u);
}

// The k-th largest of numbers of which `reach(t)` counts those that are t or more, to 2^6 below; 0: not so many.
// Every lane of a warp takes every step, for `reach` asks its neighbours.
template <class Reach> DEVICE int kth_largest(long long k, Reach reach) {
  int best = 0;
#pragma unroll 1
  for (int bit = 24; bit >= 6; bit--) {
    int t = bit == 24 ? LOWEST_SUM : best + (1 << bit);
    if (reach(t) >= k && (best || bit == 24)) best = t;
  }
  return best;
}

template <int COUNT> DEVICE void finish_row(const Search& s, int h, int g, const Rows<COUNT>& rows, int r) {
  int row = rows.row[r];
  if (row < 0) return;
  Graph graph = graph_at(s, g);
  const Units& u = rows.units[r];
  long long at = h * s.query_count + row;
  if (u.length < 0) {
    s.threshold[at] = 0;
    if (s.ordered) s.need[at] = 0;
    return;
  }
  float threshold = rows.threshold[r];
  s.threshold[at] = threshold;
  if (!s.ordered) return;
  // Norms fall: the first chunk that cannot reach, and none after it can.
  const float* edge = s.edge + (h * s.batches + graph.first_batch) / (CHUNK / 16);
  int low = 0, high = (graph.keys + CHUNK - 1) / CHUNK;
  double reach = u.length * (1 + POWER(-20));
  while (low < high) {
    int middle = (low + high) / 2;
    if (reach * edge[middle] < threshold) high = middle; else low = middle + 1;
  }
  s.need[at] = low;
}

// grid (sample tiles / (4 or 1), H): every query takes the maximum of each of GROUPS groups of the first `sample`
// batches (the longest keys, where they are ordered). k groups whose maxima reach t hold k keys that reach t.
KERNEL(thresholds, SAMPLE_WARPS * 32, 1) {
  constexpr int COUNT = 16 * SAMPLE_TILES;
  constexpr int AHEAD = WORDS <= 8 ? 2 : 1;  // steps at a time, with the next ones on their way where they fit
  __shared__ Rows<COUNT> all_rows[SAMPLE_WARPS];
  __shared__ int maxima[SPLIT == 1 ? 1 : COUNT][SPLIT == 1 ? 1 : GROUPS + 1];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, h = blockIdx.y;
  int tile = SPLIT == 1 ? blockIdx.x * SAMPLE_WARPS + warp : blockIdx.x;
  if (tile >= s.sample_tile_count) return;
  int g = s.sample_tiles[tile * 2];
  Rows<COUNT>& rows = all_rows[warp];
  Graph graph = graph_at(s, g);
  uint32_t a[SAMPLE_TILES][WORDS];
  load_queries<SAMPLE_TILES>(s, h, g, s.sample_tiles[tile * 2 + 1], false, 0x8000u, a, rows);
  const uint32_t* packed = s.packed + (h * s.batches + graph.first_batch) * BATCH;
  // Whole batches only: padding would count as keys.
  int steps = (int)min((long long)(graph.keys / 16), s.sample) / 2, step = SPLIT == 1 ? 0 : warp;
  int last = step + (steps - 1 - step) / SPLIT * SPLIT;  // a step too many repeats the last one of this warp
  int most[SAMPLE_TILES][SETS][4];
#pragma unroll
  for (int i = 0; i < SAMPLE_TILES * SETS * 4; i++) (&most[0][0][0])[i] = 0;
  const float bias[4] = {held(BIAS), held(BIAS), held(BIAS), held(BIAS)};
  uint32_t next[AHEAD][2][WORDS];
  auto fetch = [&](int from) {
#pragma unroll
    for (int i = 0; i < AHEAD * 2; i++)
      load_batch(packed + ((long long)min(from + i / 2 * SPLIT, last) * 2 + i % 2) * BATCH, next[i / 2][i % 2]);
  };
  if (step < steps && AHEAD == 2) fetch(step);
#pragma unroll 1
  for (; step < steps; step += AHEAD * SPLIT) {
    if (AHEAD == 1) fetch(step);
    uint32_t b[AHEAD][2][WORDS];
#pragma unroll
    for (int i = 0; i < AHEAD * 2 * WORDS; i++) (&b[0][0][0])[i] = (&next[0][0][0])[i];
    if (AHEAD == 2) fetch(step + AHEAD * SPLIT);
#pragma unroll
    for (int m = 0; m < SAMPLE_TILES; m++)
#pragma unroll
      for (int set = 0; set < SETS; set++) {
        float x[4], y[4];
        product(x, a[m], b[0][set / 2] + set % 2 * UNITS, bias);
        if (AHEAD == 2) product(y, a[m], b[AHEAD - 1][set / 2] + set % 2 * UNITS, bias);
#pragma unroll
        for (int j = 0; j < 4; j++)
          most[m][set][j] = max3(most[m][set][j], __float_as_int(x[j]), __float_as_int(AHEAD == 2 ? y[j] : x[j]));
      }
  }
  if constexpr (SPLIT == 1) {
#pragma unroll
    for (int m = 0; m < SAMPLE_TILES; m++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        int bits = kth_largest(s.k, [&](int t) {  // four lanes hold the maxima of a row
          int n = 0;
#pragma unroll
          for (int i = 0; i < SETS * 2; i++) n += most[m][i / 2][half * 2 + i % 2] >= t;
          n += __shfl_xor_sync(FULL, n, 1);
          return n + __shfl_xor_sync(FULL, n, 2);
        });
        int r = m * 16 + half * 8 + lane / 4;
        if (lane % 4 == 0) rows.threshold[r] = floor_of_sum(bits, rows.units[r]);
      }
    __syncwarp();
    for (int r = lane; r < COUNT; r += 32) finish_row(s, h, g, rows, r);
  } else {
#pragma unroll
    for (int i = 0; i < SAMPLE_TILES * SETS * 4; i++) {
      int m = i / (SETS * 4), set = i / 4 % SETS, j = i % 4;
      maxima[m * 16 + j / 2 * 8 + lane / 4][(warp * SETS + set) * 8 + lane % 4 * 2 + j % 2] = most[m][set][j];
    }
    __syncthreads();
    for (int r = warp; r < COUNT; r += SAMPLE_WARPS) {
      int bits = kth_largest(s.k, [&](int t) {
        int n = 0;
#pragma unroll
        for (int i = 0; i < GROUPS; i += 32) n += __popc(__ballot_sync(FULL, maxima[r][i + lane] >= t));
        return n;
      });
      if (lane == 0) {
        rows.threshold[r] = floor_of_sum(bits, rows.units[r]);
        finish_row(s, h, g, rows, r);
      }
    }
  }
}

// ---- queries by need -----------------------------------------------------------------------------------------
// grid (N / ROWS_PER_BLOCK, H), 256 threads.
KERNEL(count_queries, 256, 1) {
  __shared__ int counts[QUERY_BUCKETS];
  int h = blockIdx.y, thread = threadIdx.x;
  Span span = span_of<0>(s, (int)s.query_count, ROWS_PER_BLOCK);
  int* all = s.query_counts + h * s.graph_count * QUERY_BUCKETS;
  for (int i = thread; i < QUERY_BUCKETS; i += 256) counts[i] = 0;
  __syncthreads();
  for (int row = span.first + thread; row <= span.last; row += 256) {
    int g = span.one ? span.graph : graph_of<0>(s, row);
    int bucket = need_bucket(s.need[h * s.query_count + row], graph_at(s, g).keys);
    atomicAdd(span.one ? &counts[bucket] : &all[(long long)g * QUERY_BUCKETS + bucket], 1);
  }
  __syncthreads();
  if (!span.one) return;
  for (int i = thread; i < QUERY_BUCKETS; i += 256)
    if (counts[i]) atomicAdd(&all[(long long)span.graph * QUERY_BUCKETS + i], counts[i]);
}

KERNEL(scan_queries, 1024, 1) {
  scan<QUERY_BUCKETS>(s.query_counts + (blockIdx.y * s.graph_count + blockIdx.x) * QUERY_BUCKETS);
}

KERNEL(place_queries, 256, 1) {
  const int* need = s.need + blockIdx.y * s.query_count;
  place<QUERY_BUCKETS, 0>(s, (int)s.query_count, s.query_counts, s.query_order,
                          [&](int row, int g) { return need_bucket(need[row], graph_at(s, g).keys); });
}
