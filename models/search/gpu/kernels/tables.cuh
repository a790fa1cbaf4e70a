// Tables of graphs and tiles where only the device knows where the graphs begin; else the host makes them (plan.py).
#pragma once
#include "queries.cuh"

// grid (G / 8, 1), 256 threads, a warp a graph: its row of `graphs`, and its tiles behind those of larger graphs. The
// last graph is empty: it has the tiles that are left over, and batches of keys that are belong to it.
KERNEL(lay_out, 256, 1) {
  constexpr int SAMPLE_ROWS = 16 * SAMPLE_TILES, ROWS = 16 * TILES * (STAGED ? 4 : 1);
  int g = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32, last = (int)s.graph_count - 1;
  if (g > last) return;
  auto rows_of = [&](int graph) { return graph < last ? (int)(s.starts[graph + 1] - s.starts[graph]) : 0; };
  int unit = s.ordered ? CHUNK : 16;  // keys that a graph is padded to
  int rows = rows_of(g), batches = 0, first_sample = 0, first_tile = 0;
  for (int other = lane; other < last; other += 32) {
    int others = rows_of(other);
    if (other < g) batches += (others + unit - 1) / unit * (unit / 16);
    if (others > rows || (others == rows && other < g)) {
      first_sample += (others + SAMPLE_ROWS - 1) / SAMPLE_ROWS;
      first_tile += (others + ROWS - 1) / ROWS;
    }
  }
  batches = warp_sum(batches);
  first_sample = warp_sum(first_sample);
  first_tile = warp_sum(first_tile);
  // As `_coprime` of plan.py: the first from the golden section on that has no common divisor with the rows.
  int multiplier = max(1, (int)(rows * 0.6180339887)) + lane;
  for (;; multiplier += 32) {
    int divisor = rows, rest = multiplier;
    while (rest) {
      int next = divisor % rest;
      divisor = rest;
      rest = next;
    }
    uint32_t coprime = __ballot_sync(FULL, divisor == 1);
    if (!coprime) continue;
    multiplier = __shfl_sync(FULL, multiplier, __ffs(coprime) - 1);
    break;
  }
  int first = (int)s.starts[g], row[6] = {first, rows, first, rows, batches, multiplier};
  if (lane == 0)
    for (int i = 0; i < 6; i++) s.graphs[g * 6 + i] = row[i];
  auto write = [&](int* tiles, int from, int size, int count) {
    int end = g < last ? from + (rows + size - 1) / size : count;
    for (int i = from + lane; i < end; i += 32) {
      tiles[2 * i] = g;
      tiles[2 * i + 1] = g < last ? (i - from) * size : 0;
    }
  };
  write(s.sample_tiles, first_sample, SAMPLE_ROWS, (int)s.sample_tile_count);
  write(s.tiles, first_tile, ROWS, (int)s.tile_count);
}
