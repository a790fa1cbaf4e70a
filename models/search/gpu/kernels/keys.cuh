// Preparation of the keys: a centre for each graph and head, norms around it, an order by falling norm where graphs
// are large, and FP16 operands in the order in which the lanes of a warp hold them.
#pragma once
#include "order.cuh"

// grid (G, H), 128 threads: a mean of at most 512 keys (any vector would do), and all counters to 0.
KERNEL(prepare, 128, 1) {
  __shared__ float mean[DIM];
  __shared__ uint32_t longest;
  int g = blockIdx.x, h = blockIdx.y, thread = threadIdx.x, segment = h * (int)s.graph_count + g;
  Graph graph = graph_at(s, g);
  for (int c = thread; c < DIM; c += 128) mean[c] = 0;
  if (thread == 0) longest = 0;
  __syncthreads();
  int count = min(graph.keys, 512), step = count ? graph.keys / count : 1;
  const float* keys = s.keys + ((long long)h * s.key_count + graph.first_key) * DIM;
  for (int c = 0; c < DIM; c++) {
    float sum = 0;
    for (int i = thread; i < count; i += 128) sum += keys[(long long)i * step * DIM + c] * (1.0f / count);
    sum = warp_sum(sum);
    if (thread % 32 == 0) atomicAdd(&mean[c], sum);
  }
  __syncthreads();
  for (int c = thread; c < DIM; c += 128)
    s.centre[(long long)segment * DIM + c] = max(-3e38f, min(3e38f, mean[c]));  // rounded up it could overflow
  if (thread == 0) s.longest[segment] = 0;
  if (thread == 0 && segment == 0) *s.ticket = 0;
  if (!s.ordered) return;
  double most = 0;
  for (int i = thread; i < count; i += 128) {
    double sum = 0;
    for (int c = 0; c < DIM; c++) {
      double x = (double)keys[(long long)i * step * DIM + c] - mean[c];
      sum += x * x;
    }
    most = max(most, sum);
  }
  atomicMax(&longest, __float_as_uint((float)(sqrt(most) / NORM_UNIT)));
  __syncthreads();
  // Buckets reach two octaves above the longest key of the sample.
  if (thread == 0) s.first_prefix[segment] = (int)(longest >> 16) + 256 - (KEY_BUCKETS - 1);
  for (int i = thread; i < KEY_BUCKETS; i += 128) s.key_counts[(long long)segment * KEY_BUCKETS + i] = 0;
  for (int i = thread; i < QUERY_BUCKETS; i += 128) s.query_counts[(long long)segment * QUERY_BUCKETS + i] = 0;
}

// grid (M / rows_per_block, H), 256 threads: norms, the longest of each graph, and how many fall into each bucket.
KERNEL(norms, 256, 1) {
  __shared__ uint32_t longest;
  __shared__ int counts[KEY_BUCKETS];
  int h = blockIdx.y, thread = threadIdx.x;
  Span span = span_of<2>(s, (int)s.key_count, (int)s.rows_per_block);
  if (thread == 0) longest = 0;
  if (s.ordered)
    for (int i = thread; i < KEY_BUCKETS; i += 256) counts[i] = 0;
  __syncthreads();
  for (int row = span.first + thread; row <= span.last; row += 256) {
    long long segment = h * s.graph_count + (span.one ? span.graph : graph_of<2>(s, row)), at = h * s.key_count + row;
    const float *key = s.keys + at * DIM, *centre = s.centre + segment * DIM;
    double sum = 0;
#pragma unroll 16
    for (int c = 0; c < DIM; c++) {
      double x = (double)key[c] - centre[c];
      sum += x * x;
    }
    if (!(sum < 1e300)) *s.not_finite = 1;  // squares of finite numbers stay far below
    float norm = __double2float_ru(sqrt(sum) * (1 + POWER(-20)) / NORM_UNIT);
    s.norm[at] = norm;
    atomicMax(span.one ? &longest : &s.longest[segment], __float_as_uint(norm));
    if (s.ordered) {
      int bucket = norm_bucket(norm, s.first_prefix[segment]);
      atomicAdd(span.one ? &counts[bucket] : &s.key_counts[segment * KEY_BUCKETS + bucket], 1);
    }
  }
  __syncthreads();
  if (!span.one) return;
  long long segment = h * s.graph_count + span.graph;
  if (thread == 0) atomicMax(&s.longest[segment], longest);
  if (s.ordered)
    for (int i = thread; i < KEY_BUCKETS; i += 256)
      if (counts[i]) atomicAdd(&s.key_counts[segment * KEY_BUCKETS + i], counts[i]);
}

KERNEL(scan_keys, 1024, 1) {
  scan<KEY_BUCKETS>(s.key_counts + (blockIdx.y * s.graph_count + blockIdx.x) * KEY_BUCKETS);
}

KERNEL(place_keys, 256, 1) {
  const float* norm = s.norm + blockIdx.y * s.key_count;
  const int* first_prefix = s.first_prefix + blockIdx.y * s.graph_count;
  place<KEY_BUCKETS, 2>(s, (int)s.key_count, s.key_counts, s.key_order,
                        [&](int row, int g) { return norm_bucket(norm[row], first_prefix[g]); });
}

// grid (batches / 8, H), 256 threads: a warp packs a batch of 16 keys, in order or spread over the graph (so that
// groups of `thresholds` are a sample whatever the order of the input).
KERNEL(pack, 256, 1) {
  int h = blockIdx.y, lane = threadIdx.x % 32, batch = blockIdx.x * 8 + threadIdx.x / 32;
  if (batch >= s.batches) return;
  int g = graph_of<4>(s, batch), in_graph;
  Graph graph = graph_at(s, g);
  long long segment = h * s.graph_count + g, at_batch = h * s.batches + batch;
  double norm_scale = norm_power(s.longest[segment]), key_scale = norm_scale / NORM_UNIT;
  const float *keys = s.keys + h * s.key_count * DIM, *centre = s.centre + segment * DIM, *norm = s.norm + h * s.key_count;
  in_graph = batch - graph.first_batch;
  int rows[2];
  for (int part = 0; part < 2; part++) {
    int at = in_graph * 16 + part * 8 + lane / 4;
    if (at >= graph.keys) rows[part] = -1;
    else if (s.ordered) rows[part] = s.key_order[h * s.key_count + graph.first_key + at];
    else rows[part] = graph.first_key + (int)(at * PRIME % (uint32_t)graph.keys);
    if (lane % 4 == 0) s.packed_rows[at_batch * 16 + part * 8 + lane / 4] = rows[part];
  }
  if (s.ordered && in_graph % (CHUNK / 16) == 0 && lane == 0) {
    double edge = rows[0] < 0 ? 0 : bucket_edge(norm[rows[0]], s.first_prefix[segment], s.longest[segment]);
    s.edge[at_batch / (CHUNK / 16)] = __double2float_ru(edge * norm_scale);
  }
  uint32_t* to = s.packed + at_batch * BATCH;
#pragma unroll
  for (int w = 0; w < WORDS; w++) {
    int part = w / UNITS, row = rows[part];
    uint32_t word = 0;
    for (int j = 0; j < 2; j++) {
      int c = w % UNITS * 8 + lane % 4 * 2 + j;
      uint32_t bits = 0;
      if (row >= 0 && c < DIM) bits = half_nearest((float)(((double)keys[(long long)row * DIM + c] - centre[c]) * key_scale));
      if (row >= 0 && c == DIM) bits = half_above(__double2float_ru(norm[row] * norm_scale));
      word |= bits << (16 * j);
    }
    to[w / 4 * 128 + (w / 4 * 4 + 4 <= WORDS ? lane * 4 + w % 4 : lane * 2 + w % 2)] = word;
  }
}
