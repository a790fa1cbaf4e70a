// A counting sort of the rows of every graph and head, in three launches: count, scan, place. Rows of one bucket
// come in any order: no result depends on it.
#pragma once
#include "common.cuh"

// grid (G, H), 1,024 threads: counts (BUCKETS) of a graph become first places.
template <int BUCKETS> DEVICE void scan(int* counts) {
  __shared__ int warp_sums[32];
  constexpr int EACH = BUCKETS / 1024;
  int thread = threadIdx.x, lane = thread % 32, own = 0, *mine = counts + thread * EACH;
  for (int i = 0; i < EACH; i++) own += mine[i];
  int through = warp_through(own);
  if (lane == 31) warp_sums[thread / 32] = through;
  __syncthreads();
  if (thread < 32) {
    int sum = warp_sums[lane];
    warp_sums[lane] = warp_through(sum) - sum;
  }
  __syncthreads();
  int place = warp_sums[thread / 32] + through - own;
  for (int i = 0; i < EACH; i++) {
    int count = mine[i];
    mine[i] = place;
    place += count;
  }
}

// The rows that a block counts, and whether they belong to one graph: then it counts in shared memory.
struct Span {
  int first, last, graph;
  bool one;
};
template <int FIRST> DEVICE Span span_of(const Search& s, int rows, int size) {
  int first = blockIdx.x * size, last = min(first + size, rows) - 1, graph = graph_of<FIRST>(s, first);
  return {first, last, graph, graph == graph_of<FIRST>(s, last)};
}

// grid (rows / ROWS_PER_BLOCK, H), 256 threads: `order` (H, rows) by `bucket(row, graph)`, with one atomic on
// `places` (H, G, BUCKETS) for each bucket of a block.
template <int BUCKETS, int FIRST, class Bucket>
DEVICE void place(const Search& s, int rows, int* places, int* order, Bucket bucket) {
  __shared__ int counts[BUCKETS];
  constexpr int EACH = ROWS_PER_BLOCK / 256;
  int thread = threadIdx.x, h = blockIdx.y;
  Span span = span_of<FIRST>(s, rows, ROWS_PER_BLOCK);
  order += (long long)h * rows;
  places += (long long)h * s.graph_count * BUCKETS;
  if (!span.one) {
    for (int row = span.first + thread; row <= span.last; row += 256) {
      int g = graph_of<FIRST>(s, row);
      order[s.graphs[g * 5 + FIRST] + atomicAdd(&places[(long long)g * BUCKETS + bucket(row, g)], 1)] = row;
    }
    return;
  }
  places += (long long)span.graph * BUCKETS;
  for (int i = thread; i < BUCKETS; i += 256) counts[i] = 0;
  __syncthreads();
  int mine[EACH], within[EACH];
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    int row = span.first + thread + i * 256;
    mine[i] = row <= span.last ? bucket(row, span.graph) : -1;
    if (mine[i] >= 0) within[i] = atomicAdd(&counts[mine[i]], 1);
  }
  __syncthreads();
  for (int i = thread; i < BUCKETS; i += 256)
    if (counts[i]) counts[i] = atomicAdd(&places[i], counts[i]);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < EACH; i++)
    if (mine[i] >= 0)
      order[s.graphs[span.graph * 5 + FIRST] + counts[mine[i]] + within[i]] = span.first + thread + i * 256;
}
