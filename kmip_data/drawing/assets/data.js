// The arrays of the graph: one gzip stream in base64, cut up as the header says.

const KINDS = { u8: Uint8Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array, u16: Uint16Array };

async function readArrays(text) {
  // fetch() of a data: address is no network request; it is the fastest way from base64 to bytes.
  const packed = await fetch("data:application/octet-stream;base64," + text);
  const stream = packed.body.pipeThrough(new DecompressionStream("gzip"));
  const bytes = await new Response(stream).arrayBuffer();
  return ({ kind, at, count }) => new KINDS[kind](bytes, at, count);
}

// A column as a function of the intersection. Columns of few distinct values are codes into a table.
function readColumn(column, array) {
  const values = array(column.values);
  if (!column.codes) return (node) => values[node];
  const codes = array(column.codes);
  return (node) => values[codes[node]];
}

// The ends of each edge next to each other: stored are all first ones, then all second ones.
function readPairs(ends) {
  const count = ends.length / 2;
  return Uint32Array.from(ends, (_, i) => ends[(i >> 1) + (i % 2) * count]);
}

// The nearest wanted node within `limit` of (px, py), or -1: a million are looked at in a few milliseconds.
// With depths in space, in front comes before behind: half a reach of depth is as far as `limit` beside it.
function nearestNode(x, y, px, py, limit, wanted, depth) {
  let [best, least] = [-1, limit * limit];
  for (let node = 0; node < x.length; node++) {
    let distance = (x[node] - px) ** 2 + (y[node] - py) ** 2;
    if (depth && distance <= least) distance += (limit * (1 + depth[node])) ** 2 / 4;
    if (distance <= least && wanted(node)) {
      best = node;
      least = distance;
    }
  }
  return best;
}

// The least and the largest of the values.
function extent(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}
