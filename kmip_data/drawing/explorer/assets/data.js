// The arrays of the map: one gzip stream in base64, cut up as the header says.

const KINDS = { u8: Uint8Array, u32: Uint32Array, f32: Float32Array, f64: Float64Array, u16: Uint16Array };

async function readArrays(text) {
  if (!("DecompressionStream" in window)) {
    throw new Error("This map needs a browser of 2023 or later.");
  }
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

// The sinusoids of longitude and latitude, made as the build makes them instead of being stored again.
function sinusoids({ bounds, bands, axes }, columns) {
  const made = [];
  for (const [axis, name] of [[0, "longitude"], [1, "latitude"]]) {
    const degrees = columns.get(axes[axis]);
    const [low, high] = bounds[axis];
    for (const wave of ["sin", "cos"]) {
      for (let band = 0; band < bands; band++) {
        const angle = (node) => ((degrees(node) - low) / (high - low || 1) - 0.5) * 2 * 0.9 * Math.PI * 2 ** band;
        made.push([`${wave} ${2 ** band}·${name}`, (node) => Math[wave](angle(node))]);
      }
    }
  }
  return made;
}

// Intersections by square cell: nearest(x, y, limit) looks at the cells that a square of that reach meets.
function gridIndex(x, y) {
  const count = x.length;
  const bounds = [Infinity, Infinity, -Infinity, -Infinity];
  for (let i = 0; i < count; i++) {
    bounds[0] = Math.min(bounds[0], x[i]);
    bounds[1] = Math.min(bounds[1], y[i]);
    bounds[2] = Math.max(bounds[2], x[i]);
    bounds[3] = Math.max(bounds[3], y[i]);
  }
  const [west, south, east, north] = bounds;
  // About two intersections a cell, and never more than 4096 cells along a side.
  const even = Math.sqrt((2 * (east - west) * (north - south)) / count);
  const side = Math.max(even, Math.max(east - west, north - south) / 4096, 1e-3);
  const columns = Math.floor((east - west) / side) + 1;
  const rows = Math.floor((north - south) / side) + 1;
  const along = (value, low, most) => Math.min(Math.max(Math.floor((value - low) / side), 0), most - 1);
  const cell = (i) => along(y[i], south, rows) * columns + along(x[i], west, columns);
  const first = new Uint32Array(columns * rows + 1);
  for (let i = 0; i < count; i++) first[cell(i) + 1]++;
  for (let c = 0; c < columns * rows; c++) first[c + 1] += first[c];
  const next = first.slice();
  const members = new Uint32Array(count);
  for (let i = 0; i < count; i++) members[next[cell(i)]++] = i;

  // Return the nearest wanted intersection within `limit` metres, or -1.
  const nearest = (px, py, limit, wanted) => {
    let [best, least] = [-1, limit * limit];
    const [left, right] = [px - limit, px + limit].map((value) => along(value, west, columns));
    for (let row = along(py - limit, south, rows); row <= along(py + limit, south, rows); row++) {
      // The cells of a row lie side by side, and so do their members.
      const last = first[row * columns + right + 1];
      for (let m = first[row * columns + left]; m < last; m++) {
        const node = members[m];
        const distance = (x[node] - px) ** 2 + (y[node] - py) ** 2;
        if (distance <= least && wanted(node)) [best, least] = [node, distance];
      }
    }
    return best;
  };
  return { nearest, bounds };
}
