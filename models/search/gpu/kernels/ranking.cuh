// Scores by the rule, and sorting by (score, lower row): what decides the result.
#pragma once
#include "common.cuh"

// One integer orders as (score falling, row rising) do when it falls; 0 means no candidate.
DEVICE u64 rank_of(float score, int row) {
  uint32_t bits = __float_as_uint(score + 0.0f);  // + 0: no -0
  bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (u64)bits << 32 | (0xffffffffu - (uint32_t)row);
}
DEVICE float rank_score(u64 rank) {
  uint32_t bits = (uint32_t)(rank >> 32);
  return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}
DEVICE int rank_row(u64 rank) { return (int)(0xffffffffu - (uint32_t)rank); }

// The rule: the float64 sum of the exact products in index order, rounded once to float32. Rows below 0: none.
template <int EACH>
DEVICE void score_rows(const Search& s, int h, int query_row, const int (&row)[EACH], u64 (&rank)[EACH]) {
  const float* keys = s.keys + h * s.key_count * DIM;
  const float* query = s.queries + (h * s.query_count + max(query_row, 0)) * DIM;
  // Eight candidates at a time: sums of more would not fit into registers.
  constexpr int SOME = EACH < 8 ? EACH : 8;
  // Two columns at a time where rows are aligned to it.
  constexpr int STEP = DIM % 2 ? 1 : 2;
#pragma unroll
  for (int from = 0; from < EACH; from += SOME) {
    double sum[SOME];
#pragma unroll
    for (int e = 0; e < SOME; e++) sum[e] = 0;
#pragma unroll 8
    for (int c = 0; c < DIM; c += STEP) {
      double a[STEP];
      if constexpr (STEP == 2) {
        float2 two = __ldg((const float2*)(query + c));
        a[0] = two.x, a[STEP - 1] = two.y;
      } else {
        a[0] = __ldg(query + c);
      }
#pragma unroll
      for (int e = 0; e < SOME; e++)
        if (row[from + e] >= 0) {
          const float* key = keys + (long long)row[from + e] * DIM + c;
          if constexpr (STEP == 2) {
            float2 two = __ldg((const float2*)key);
            sum[e] = fma(a[STEP - 1], (double)two.y, fma(a[0], (double)two.x, sum[e]));
          } else {
            sum[e] = fma(a[0], (double)__ldg(key), sum[e]);
          }
        }
    }
#pragma unroll
    for (int e = 0; e < SOME; e++) rank[from + e] = row[from + e] < 0 ? 0 : rank_of((float)sum[e], row[from + e]);
  }
}

// Bitonic: each run of LANES lanes sorts its LANES * EACH numbers; element e of lane i is number i * EACH + e of the
// falling order. In a run of `size` the order falls where the number & size is 0.
template <int LANES, int EACH> DEVICE void sort_falling(u64 (&x)[EACH]) {
  int lane = threadIdx.x % LANES;
#pragma unroll
  for (int size = 2; size <= LANES * EACH; size *= 2) {
#pragma unroll
    for (int stride = size / 2; stride >= EACH; stride /= 2) {
      bool larger = ((lane * EACH & size) == 0) == ((lane * EACH & stride) == 0);
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        u64 other = __shfl_xor_sync(FULL, x[e], stride / EACH);
        x[e] = (x[e] > other) == larger ? x[e] : other;
      }
    }
#pragma unroll
    for (int stride = size / 2 < EACH ? size / 2 : EACH / 2; stride > 0; stride /= 2) {
#pragma unroll
      for (int e = 0; e < EACH; e++)
        if ((e & stride) == 0) {
          bool falls = size < EACH ? (e & size) == 0 : size == LANES * EACH || (lane * EACH & size) == 0;
          u64 first = x[e], second = x[e | stride];
          bool swap = (first < second) == falls;
          x[e] = swap ? second : first;
          x[e | stride] = swap ? first : second;
        }
    }
  }
}
