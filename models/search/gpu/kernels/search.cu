// The search itself: tensor cores multiply all queries with all keys that can matter, keys whose sign bit is clear
// are noted, and what was noted is scored by the rule and sorted.
#include "keys.cuh"
#include "queries.cuh"
#include "tables.cuh"

#define WARPS 4
#define COUNT (16 * TILES)      // queries of a warp
#define PART (LIST / 4)         // places of each of a query's four lists
// Batches of keys between two votes of a warp: as many as registers hold, or eight in shared memory.
#define AT_ONCE (STAGED ? 8 : TILES == 4 || WORDS > 16 ? 1 : WORDS == 2 && TILES == 2 ? 4 : 16 / WORDS)
#define RING 4                  // stages of keys in shared memory
#define SIDE_BY_SIDE (WORDS > 4 ? 1 : 2)  // batches of a stage in registers; more would spill others
#define RESIDENT (WORDS > 8 ? 2 : 4)  // blocks of a processor, as in plan.py

// ---- from notes to ranks -----------------------------------------------------------------------------------
// LANES lanes rank what was noted for their row r (LANES * EACH candidates at most); as `sort_falling` leaves it.
template <int LANES, int EACH>
DEVICE void rank_noted(const Search& s, int h, const Rows<COUNT>& rows, int r, const int* list, const int* packed_rows,
                       u64 (&x)[EACH]) {
  int lane = threadIdx.x % LANES, end[4], sum = 0, row[EACH];
  for (int t = 0; t < 4; t++) end[t] = sum += rows.row[r] < 0 ? 0 : rows.count[r][t];
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    int i = e * LANES + lane, part = (i >= end[0]) + (i >= end[1]) + (i >= end[2]);
    int from = part == 0 ? 0 : part == 1 ? end[0] : part == 2 ? end[1] : end[2];
    if (i >= end[3]) {
      row[e] = -1;
    } else {
      int noted = list[r * LIST + part * PART + i - from];
      row[e] = noted < 0 ? ~noted : __ldg(packed_rows + noted);
    }
  }
  score_rows<EACH>(s, h, rows.row[r], row, x);
  sort_falling<LANES, EACH>(x);
}

// Ranks and writes 32 / LANES rows from `first` on.
template <int LANES, int EACH>
OUTLINED void write_some(const Search& s, int h, const Rows<COUNT>& rows, int first, const int* list,
                         const int* packed_rows) {
  u64 x[EACH];
  int r = first + threadIdx.x % 32 / LANES;
  rank_noted<LANES, EACH>(s, h, rows, r, list, packed_rows, x);
  __syncwarp();
  if (rows.row[r] < 0) return;
  long long at = (h * s.query_count + rows.row[r]) * s.k;
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    int i = threadIdx.x % LANES * EACH + e;
    if (i < s.k) {
      s.scores[at + i] = x[e] ? rank_score(x[e]) : __uint_as_float(0xff800000u);
      int row = x[e] ? rank_row(x[e]) : -1;
      if (s.narrow) ((int*)s.indices)[at + i] = row; else ((long long*)s.indices)[at + i] = row;
    }
  }
}

// One row by all lanes, however many its candidates are: keeps the best k of its lists and raises its threshold.
OUTLINED void settle(const Search& s, int h, Rows<COUNT>& rows, int r, int* list, const int* packed_rows) {
  constexpr int EACH = LIST / 32;
  int lane = threadIdx.x % 32, wanted = (int)s.k, kept = 0;
  u64 x[EACH], last = 0;
  rank_noted<32, EACH>(s, h, rows, r, list, packed_rows, x);
  __syncwarp();
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    int i = lane * EACH + e;
    if (i < wanted && x[e]) {
      list[r * LIST + i % 4 * PART + i / 4] = ~rank_row(x[e]);
      kept++;
    }
    if ((wanted - 1) % EACH == e) last = x[e];
  }
  last = __shfl_sync(FULL, last, (wanted - 1) / EACH);
  kept = warp_sum(kept);
  if (lane < 4) rows.count[r][lane] = (kept - lane + 3) / 4;
  if (lane == 0 && last)
    rows.threshold[r] = max(rows.threshold[r], floor_of_score(rank_score(last), rows.units[r]));
  __syncwarp();
}

// All rows of a warp, each with as few lanes as its candidates take.
DEVICE void write_rows(const Search& s, int h, Rows<COUNT>& rows, int* list, const int* packed_rows) {
  int lane = threadIdx.x % 32;
  __syncwarp();
#pragma unroll 1
  for (int r = 0; r < COUNT; r += 8) {
    int most = 0;
    if (lane < 8)
      for (int t = 0; t < 4; t++) most += rows.count[r + lane][t];
    most = max(warp_max(most), (int)s.k);
    if (LIST == 128 && most <= 32)
      write_some<4, 8>(s, h, rows, r, list, packed_rows);
    else if (most <= 64)
      for (int i = 0; i < 8; i += 4) write_some<8, 8>(s, h, rows, r + i, list, packed_rows);
    else if (most <= 128)
      for (int i = 0; i < 8; i += 2) write_some<16, 8>(s, h, rows, r + i, list, packed_rows);
    else
      for (int i = 0; i < 8; i++) write_some<32, LIST / 32>(s, h, rows, r + i, list, packed_rows);
  }
}

// Makes room in lists that are more than half full.
DEVICE void shrink(const Search& s, int h, Rows<COUNT>& rows, int* list, const int* packed_rows) {
  __syncwarp();
#pragma unroll 1
  for (int r = 0; r < COUNT; r++) {
    const int* n = rows.count[r];
    if (max(max(n[0], n[1]), max(n[2], n[3])) > PART / 2) settle(s, h, rows, r, list, packed_rows);
  }
}

// What products must begin with so that those of keys below the threshold end negative: FP32 sums round by 2^-22 of
// the largest partial sum.
DEVICE void refill(float (&start)[TILES][4], const Rows<COUNT>& rows) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < TILES * 2; i++) {
    int r = i * 8 + lane / 4;
    double threshold = rows.threshold[r];
    double low = threshold - fabs(threshold) * ((WIDTH + 4) / 4194304.0) - POWER(-20);
    if (!MARGIN_COLUMN) low -= slack() * rows.units[r].length * 16;
    float from = rows.row[r] < 0 || rows.units[r].length < 0 ? NEVER : -__double2float_rd(low);
    // Opaque one by one: one value stored twice has the accumulators rebuilt by moves, 92 instead of 64 instructions
    // for 16 products at d = 10.
    start[i / 2][i % 2 * 2] = held(from);
    start[i / 2][i % 2 * 2 + 1] = held(from);
  }
}

// ---- the kernel --------------------------------------------------------------------------------------------
// grid: resident blocks, 4 warps; every block takes tiles until none is left. Lane 4 i + t owns list t of the rows
// that are i (mod 8). STAGED: its warps take neighbouring tiles of one graph.
KERNEL(collect, WARPS * 32, RESIDENT) {
  __shared__ Rows<COUNT> all_rows[WARPS];
  __shared__ int shared_item, shared_batches;
#if STAGED
  __shared__ uint4 ring[RING * AT_ONCE * BATCH / 4];
#endif
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  long long groups = STAGED ? s.tile_count : (s.tile_count + WARPS - 1) / WARPS;
  Rows<COUNT>& rows = all_rows[warp];
  int* list = s.list + (long long)(blockIdx.x * WARPS + warp) * COUNT * LIST;
  for (;;) {
    __syncthreads();
    if (threadIdx.x == 0) {
      shared_item = atomicAdd(s.ticket, 1);
      shared_batches = 0;
    }
    __syncthreads();
    int item = shared_item, h = (int)(item % s.heads);
    if (item >= groups * s.heads) return;
    int tile = (int)(STAGED ? item / s.heads : item / s.heads * WARPS + warp);
    if (!STAGED && tile >= s.tile_count) continue;
    int g = s.tiles[tile * 2], first = s.tiles[tile * 2 + 1] + (STAGED ? warp * COUNT : 0);
    Graph graph = graph_at(s, g);
    const int* packed_rows = s.packed_rows + (h * s.batches + graph.first_batch) * 16;
    const uint32_t* packed = s.packed + (h * s.batches + graph.first_batch) * BATCH;
    uint32_t a[TILES][WORDS];
    load_queries<TILES>(s, h, g, first, s.ordered, 0, a, rows);
    int need = 0;  // chunks; of the neediest row
    for (int r = lane; r < COUNT; r += 32)
      if (rows.row[r] >= 0 && rows.units[r].length >= 0)
        need = max(need, s.ordered ? s.need[h * s.query_count + rows.row[r]] : (graph.keys + CHUNK - 1) / CHUNK);
    int batches = min((graph.keys + 15) / 16, warp_max(need) * (CHUNK / 16));
    if (STAGED && lane == 0) atomicMax(&shared_batches, batches);

    float start[TILES][4];
    // Whether some key of the batch may matter to some query of this lane.
    auto look = [&](const uint32_t (&b)[WORDS]) {
      uint32_t all = ~0u;
#pragma unroll
      for (int m = 0; m < TILES; m++) {
        float x[4], y[4];
        product(x, a[m], b, start[m]);
        product(y, a[m], b + UNITS, start[m]);
#pragma unroll
        for (int j = 0; j < 4; j++) all &= __float_as_uint(x[j]) & __float_as_uint(y[j]);
      }
      return ~all >> 31;
    };
    // Notes the keys of a batch that may matter; lists and their counts belong to one lane each. Whether a list was
    // full and all were cut.
    auto note = [&](int batch, const uint32_t (&b)[WORDS]) {
      uint32_t below = 0;  // bit 8 (2 half + column) + 2 m + part: tile m, rows half * 8 on, keys part * 8 on
#pragma unroll
      for (int i = 0; i < TILES * 2; i++) {
        float x[4];
        product(x, a[i / 2], b + i % 2 * UNITS, start[i / 2]);
        uint32_t top = permute(__float_as_uint(x[0]), __float_as_uint(x[1]), 0x00fb);
        uint32_t lower = permute(__float_as_uint(x[2]), __float_as_uint(x[3]), 0x00fb);
        below |= permute(top, lower, 0x5410) & (0x01010101u << i);
      }
      uint32_t found = ~below & (0x01010101u * ((1 << 2 * TILES) - 1));
      int own = batch * 16 + lane % 4 * 2, fullest = 0, *counts = &rows.count[0][0];
      while (found) {
        int bit = __ffs(found) - 1, key = own + (bit & 1) * 8 + (bit >> 3 & 1), part = ((bit & 6) + (bit >> 4)) * 32 + lane;
        found &= found - 1;
        if (key < graph.keys) {
          int n = counts[part];
          list[part * PART + n] = key;
          counts[part] = n + 1;
          fullest = max(fullest, n + 1);
        }
      }
      if (!__any_sync(FULL, fullest > PART - 5)) return false;  // one more batch brings up to four
      shrink(s, h, rows, list, packed_rows);
      refill(start, rows);
      return true;
    };
    for (int r = lane; r < COUNT; r += 32) {
      rows.threshold[r] = rows.row[r] < 0 ? 0.0f : s.threshold[h * s.query_count + rows.row[r]];
      for (int t = 0; t < 4; t++) rows.count[r][t] = 0;
    }
    __syncwarp();
    refill(start, rows);
#if STAGED
    __syncthreads();
    int stages = (shared_batches + AT_ONCE - 1) / AT_ONCE;
    int padded = (graph.keys + CHUNK - 1) / CHUNK * (CHUNK / 16);
    constexpr int STAGE = AT_ONCE * BATCH / 4;  // in 16 bytes
    auto fetch = [&](int stage) {
      int there = stage < stages ? min(padded - stage * AT_ONCE, AT_ONCE) * (BATCH / 4) : 0;
      const uint4* from = (const uint4*)(packed + (long long)stage * AT_ONCE * BATCH);
#pragma unroll
      for (int j = 0; j < STAGE; j += WARPS * 32) {
        int i = j + threadIdx.x;
        if (i < there) copy_start(ring + stage % RING * STAGE + i, from + i);
      }
      copy_commit();
    };
#pragma unroll 1
    for (int stage = 0; stage < RING - 1; stage++) fetch(stage);
    int noting = 0;  // stages to come whose batches are noted without a look first: most would need it
#pragma unroll 1
    for (int stage = 0; stage < stages; stage++) {
      copy_wait<RING - 2>();
      __syncthreads();
      fetch(stage + RING - 1);
      const uint32_t* here = (const uint32_t*)(ring + stage % RING * STAGE);
      int there = min(AT_ONCE, batches - stage * AT_ONCE);
      if (there <= 0) continue;
      uint32_t hit = noting ? ~0u : 0;
      if (noting) {
        noting--;
      } else {
#pragma unroll SIDE_BY_SIDE
        for (int i = 0; i < AT_ONCE; i++) {
          uint32_t b[WORDS];
          load_batch(here + i * BATCH, b);
          hit |= look(b) << i;
        }
        hit = any_bits(hit);
        if (__popc(hit) >= AT_ONCE * 3 / 4) noting = 8;
      }
      hit &= (1u << there) - 1;
#pragma unroll 1
      for (; hit; hit &= hit - 1) {
        int i = __ffs(hit) - 1;
        uint32_t b[WORDS];
        load_batch(here + i * BATCH, b);
        note(stage * AT_ONCE + i, b);
      }
    }
#else
    constexpr bool AHEAD = WORDS <= 16;  // the next batches are on their way while these are multiplied
    uint32_t next[AT_ONCE][WORDS];
    auto fetch = [&](int i, int batch) { load_batch(packed + (long long)min(batch, batches - 1) * BATCH, next[i]); };
    auto fetch_ahead = [&](int batch) {
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++) fetch(i, batch + i);
    };
    if (AHEAD && batches) fetch_ahead(0);
#pragma unroll 1
    for (int batch = 0; batch < batches; batch += AT_ONCE) {
      uint32_t hit = 0;
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++) {
        if (!AHEAD) fetch(i, batch + i);
        uint32_t b[WORDS];
#pragma unroll
        for (int w = 0; w < WORDS; w++) b[w] = next[i][w];
        if (AHEAD) fetch(i, batch + AT_ONCE + i);
        hit |= look(b) << i;
      }
      hit = any_bits(hit) & ((1u << min(AT_ONCE, batches - batch)) - 1);
#pragma unroll 1
      for (; hit; hit &= hit - 1) {
        int i = __ffs(hit) - 1;
        uint32_t b[WORDS];
        load_batch(packed + (long long)(batch + i) * BATCH, b);
        // Fetched again, the next batches need no registers while lists are cut.
        if (note(batch + i, b) && AHEAD) fetch_ahead(batch + AT_ONCE);
      }
    }
#endif
    write_rows(s, h, rows, list, packed_rows);
  }
}
