// What all stages share: the problem and its scratch memory, instructions of the device, units with proven bounds.
//
// One program is compiled for each of these, given as macros:
//   DIM           length d of a query and of a key
//   LIST          places for candidates of one query, in four lists of LIST / 4
//   SPLIT         warps that share a sample of keys in `thresholds`: 1 (32 groups), or 8 (256 groups)
//   TILES         tiles of 16 queries that a warp takes
//   STAGED        1: the warps of a block of `collect` read keys through shared memory
//
// The same source is compiled by g++ with -DEMULATED for the tests. docs/adr/search.md, 0280, has the proofs of all bounds.
#pragma once
#if EMULATED
#include "cuda_emulation.h"
#else
typedef unsigned int uint32_t;
#define DEVICE __device__ __forceinline__
#define OUTLINED __device__ __noinline__
#define KERNEL(NAME, THREADS, BLOCKS) \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME(const __grid_constant__ Search s)
#endif

typedef unsigned long long u64;
#define UNITS ((DIM + 7) / 8)  // of 8 columns
#define WIDTH (8 * UNITS)
#define WORDS (2 * UNITS)              // 32-bit words that a lane holds of 16 rows: two FP16 numbers each
#define BATCH (32 * WORDS)             // words of a batch of 16 keys
#define MARGIN_COLUMN (DIM < WIDTH)    // a column to spare carries each key's own margin
#define FULL 0xffffffffu               // all lanes of a warp
#define KEY_BUCKETS 2048               // of norms
#define QUERY_BUCKETS 1024             // of needs
#define CHUNK 64                       // keys that share a bound on their norms
#define ROWS_PER_BLOCK 4096              // where rows are counted and placed
#define NEVER -1e30f                   // a threshold that excludes nothing
#define LARGEST 3.4028e38              // scores up to here are finite once rounded to float32
// Larger than any number of keys, so its multiples modulo that number are all of them: they spread keys over a graph.
#define PRIME 2654435761ull
#define POWER(exponent) (__longlong_as_double((long long)(1023 + (exponent)) << 52))

// All members take 8 bytes, in the order of STRUCT_POINTERS and STRUCT_NUMBERS in plan.py. H heads, G graphs, N queries, M keys.
struct Search {
  const float *queries, *keys;   // (H, N, DIM), (H, M, DIM)
  const long long *starts, *key_starts;  // (G): where queries and keys of each graph begin, the last one empty
  int* not_finite;               // set to 1 where a query or a key is NaN or infinite
  float* scores;                 // (H, N, k)
  void* indices;                 // (H, N, k)
  int* graphs;                   // (G, 5): first query, queries, first key, keys, first batch of keys
  int* sample_tiles;             // (T, 2): graph, first query within it; for `thresholds`
  int* tiles;                    // (T, 2): the same for `collect`
  float* centre;                 // (H, G, DIM)
  uint32_t* longest;             // (H, G): bits of the largest norm
  int* first_prefix;             // (H, G): of the norms that have buckets
  float* norm;                   // (H, M): of key - centre, in units of NORM_UNIT, rounded up
  int* key_counts;               // (H, G, KEY_BUCKETS): how many, then the next place
  int* key_order;                // (H, M): keys of a graph by falling norm
  uint32_t* packed;              // (H, batches, BATCH): FP16 operands in the order in which lanes hold them
  int* packed_rows;              // (H, batches, 16): row of each packed key, or -1
  float* edge;                   // (H, batches / 4): no norm from this chunk on is above it; in filter units
  float* threshold;              // (H, N): filter value below which a key cannot matter
  int* need;                     // (H, N): chunks to visit
  int* query_counts;             // (H, G, QUERY_BUCKETS)
  int* query_order;              // (H, N): queries of a graph by falling need
  int* list;                     // (resident warps, 16 TILES, LIST): packed places; those of the best as ~row
  int* ticket;                   // next tile of `collect`
  long long narrow;              // 1: the indices are int32, else int64
  long long heads, graph_count, query_count, key_count, batches, sample_tile_count, tile_count;
  long long k;                   // wanted
  long long sample;              // batches of keys that `thresholds` reads
  long long ordered;             // 1: keys by norm and queries by need
  long long rows_per_block;        // of `norms`
};
struct Graph { int first_query, queries, first_key, keys, first_batch; };

// ---- instructions ----------------------------------------------------------------------------------------
#if !EMULATED
// d = a b + c for 16 rows of a, 8 columns of b and 16 or 8 products each: FP16 operands, FP32 sums.
DEVICE void multiply_16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1, const float* c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
DEVICE void multiply_8(float* d, const uint32_t* a, uint32_t b, const float* c) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%7,%8,%9,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
DEVICE uint32_t permute(uint32_t x, uint32_t y, uint32_t bytes) {
  uint32_t r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(bytes));
  return r;
}
DEVICE uint32_t half_nearest(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
DEVICE uint32_t half_above(float x) {
  unsigned short bits;
  asm("cvt.rp.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
DEVICE float half_value(uint32_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((unsigned short)bits));
  return x;
}
DEVICE int max3(int a, int b, int c) { return __vimax3_s32(a, b, c); }
// Keeps the compiler from recomputing x in a loop instead of holding it in a register.
DEVICE float held(float x) {
  float y;
  asm volatile("mov.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE uint32_t any_bits(uint32_t x) { return __reduce_or_sync(FULL, x); }
DEVICE int warp_max(int x) { return __reduce_max_sync(FULL, x); }
DEVICE void copy_start(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from));
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;"); }
template <int PENDING> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING)); }
#endif

// Over the lanes of a warp: sum of all, sum up to each.
template <class T> DEVICE T warp_sum(T x) {
  for (int lane = 16; lane; lane >>= 1) x += __shfl_xor_sync(FULL, x, lane);
  return x;
}
DEVICE int warp_through(int x) {
  for (int step = 1; step < 32; step *= 2) {
    int before = __shfl_up_sync(FULL, x, step);
    if (threadIdx.x % 32 >= step) x += before;
  }
  return x;
}

// d = c + 16 queries times 8 keys, UNITS words of each: d[0..1] rows lane / 4, columns 2 (lane % 4) + {0, 1};
// d[2..3] the rows 8 further down.
DEVICE void product(float* d, const uint32_t (&a)[WORDS], const uint32_t* b, const float* c) {
  int u = 0;
#if UNITS > 1
  multiply_16(d, a, b[0], b[1], c);
#pragma unroll
  for (u = 2; u + 1 < UNITS; u += 2) multiply_16(d, a + 2 * u, b[u], b[u + 1], d);
#else
  multiply_8(d, a, b[u++], c);
#endif
#pragma unroll
  for (; u < UNITS; u++) multiply_8(d, a + 2 * u, b[u], d);
}

// Words of a batch as a lane holds them: UNITS of keys 0..7, then UNITS of keys 8..15.
DEVICE void load_batch(const uint32_t* batch, uint32_t (&b)[WORDS]) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int w = 0; w + 4 <= WORDS; w += 4) {
    uint4 four = *((const uint4*)(batch + w * 32) + lane);
    b[w] = four.x; b[w + 1] = four.y; b[w + 2] = four.z; b[w + 3] = four.w;
  }
  if (WORDS % 4) {
    uint2 two = *((const uint2*)(batch + WORDS / 4 * 128) + lane);
    b[WORDS - 2] = two.x; b[WORDS - 1] = two.y;
  }
}

// ---- units -----------------------------------------------------------------------------------------------
// Filter units: q = query * 2^a with |q| in [1, 2), k' = (key - centre) * 2^b with |k'| < 16, both powers exact.
// The filter's value of a pair is x = q k' = score * factor - offset with factor = 2^(a + b), offset = q centre.
#define NORM_UNIT 256.0  // keeps norms of any finite keys in the float32 range

DEVICE int exponent_of(double x) { return (int)((__double_as_longlong(x) >> 52) & 0x7ff) - 1023; }
DEVICE double query_power(double norm) { return norm > 0 ? POWER(-exponent_of(norm)) : 1.0; }
// 2^b, for norms in units of NORM_UNIT; keys themselves take it over NORM_UNIT.
DEVICE double norm_power(uint32_t longest) {
  double norm = __uint_as_float(longest);
  return norm > 0 ? POWER(3 - exponent_of(norm)) : 1.0;
}
// Bound on the error of a product relative to |q||k'|: operands rounded to FP16, then FP32 sums.
DEVICE double slack() { return 1.01 * (1.0 / 1024 + 1.0 / (1 << 20) + (WIDTH + 8) / 4194304.0); }

struct Units {
  double factor, offset;
  float length;  // |q|, rounded up; -1: NaN or infinity is among the query or its keys, and nothing is looked for
  float error;   // of float64 sums and of `offset`: |q||centre| DIM 2^-50
};
// The filter value below which no key can matter, where a key's exact value is x or more: one that is lower can
// neither beat it nor tie with it once scores are rounded to float32 (which may flush or overflow them).
DEVICE float floor_below(double x, const Units& u) {
  double below = x - (fabs(x) + fabs(u.offset)) / (1 << 22) - 1.0 / (1 << 30) - u.error - u.factor * POWER(-149);
  below = min(below, LARGEST * u.factor - u.offset - u.error);      // scores above tie as infinite
  if (below + u.offset < u.error - LARGEST * u.factor) return NEVER;  // and those below
  return __double2float_rd(max(below, (double)NEVER));
}

// ---- which graph, which bucket -----------------------------------------------------------------------------
DEVICE Graph graph_at(const Search& s, int g) { return ((const Graph*)s.graphs)[g]; }
// Graph of a row by column FIRST of the table (0: queries, 2: keys, 4: batches); graphs without rows never.
template <int FIRST> DEVICE int graph_of(const Search& s, int row) {
  int low = 0, high = (int)s.graph_count;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (s.graphs[middle * 5 + FIRST] <= row) low = middle; else high = middle;
  }
  return low;  // of graphs that begin at the same row the last: the others are empty
}
// Norms by the upper 16 bits of the float, 128 buckets an octave, falling; all longer ones share bucket 0.
DEVICE int norm_prefix(float norm) { return (int)(__float_as_uint(norm) >> 16); }
DEVICE int norm_bucket(float norm, int first_prefix) {
  return KEY_BUCKETS - 1 - max(0, min(KEY_BUCKETS - 1, norm_prefix(norm) - first_prefix));
}
DEVICE float bucket_edge(float norm, int first_prefix, uint32_t longest) {  // no norm of its bucket is above
  int prefix = max(first_prefix, norm_prefix(norm));
  return __uint_as_float(prefix >= first_prefix + KEY_BUCKETS - 1 ? longest : (uint32_t)(prefix + 1) << 16);
}
DEVICE int need_bucket(int need, int keys) {
  int chunks = (keys + CHUNK - 1) / CHUNK;
  return QUERY_BUCKETS - 1 - (int)((long long)need * (QUERY_BUCKETS - 1) / max(chunks, 1));
}
