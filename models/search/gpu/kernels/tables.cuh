// Tables of graphs and tiles: for every search where only the device knows where the graphs begin, else once a plan.
#pragma once
#include "queries.cuh"

// grid (G / 8, 1), 256 threads, a warp a graph: its row of `graphs`, and its tiles behind those of larger graphs. The
// last graph is empty: it has the tiles that are left over, and batches of keys that are belong to it.
KERNEL(lay_out, 256, 1) {
  constexpr int SAMPLE_ROWS = 16 * SAMPLE_TILES, ROWS = 16 * TILES * (STAGED ? 4 : 1);
  int g = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32, last = (int)s.graph_count - 1;
  if (g > last) return;
  auto rows_of = [&](const long long* starts, int graph) {
    return graph < last ? (int)(starts[graph + 1] - starts[graph]) : 0;
  };
  int unit = s.ordered ? CHUNK : 16;  // keys that a graph is padded to
  int queries = rows_of(s.starts, g), keys = rows_of(s.key_starts, g), batches = 0, first_sample = 0, first_tile = 0;
  for (int other = lane; other < last; other += 32) {
    int others = rows_of(s.starts, other), other_keys = rows_of(s.key_starts, other);
    if (other < g) batches += (other_keys + unit - 1) / unit * (unit / 16);
    if (other_keys > keys || (other_keys == keys && other < g)) {
      first_sample += (others + SAMPLE_ROWS - 1) / SAMPLE_ROWS;
      first_tile += (others + ROWS - 1) / ROWS;
    }
  }
  batches = warp_sum(batches);
  first_sample = warp_sum(first_sample);
  first_tile = warp_sum(first_tile);
  int row[5] = {(int)s.starts[g], queries, (int)s.key_starts[g], keys, batches};
  if (lane == 0)
    for (int i = 0; i < 5; i++) s.graphs[g * 5 + i] = row[i];
  auto write = [&](int* tiles, int from, int size, int count) {
    int end = g < last ? from + (queries + size - 1) / size : count;
    for (int i = from + lane; i < end; i += 32) {
      tiles[2 * i] = g;
      tiles[2 * i + 1] = g < last ? (i - from) * size : 0;
    }
  };
  write(s.sample_tiles, first_sample, SAMPLE_ROWS, (int)s.sample_tile_count);
  write(s.tiles, first_tile, ROWS, (int)s.tile_count);
}
