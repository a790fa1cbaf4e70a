// Superpixels whose picture is not in the page, as cells: each pixel has the colour of the nearest node, if one is near.

const CELL_PIXELS = 600; // of the longer side
const NEAR = 2; // distances between nodes

// The ends of the picture across and up: rows and columns such as "row / 28" are fractions of its sides; of others,
// it ends half a distance of nodes behind the last ones.
function frameOf() {
  const [across, down] = ["column", "row"].map((side) => [...columns.keys()].find((name) => name.startsWith(`${side} / `)));
  const [[west, east], [south, north]] = [x, y].map(extent);
  if (!across || !down) return [[west - usual / 2, east + usual / 2], [south - usual / 2, north + usual / 2]];
  const [[first, last], [top]] = [across, down].map((name) => extent(Array.from(x, (_, node) => columns.get(name)(node))));
  const side = (east - west) / (last - first);
  const [left, above] = [west - first * side, north + top * side];
  return [[left, left + side], [above - side, above]];
}

// Return the cells and their box, or null for a graph whose nodes are no regions of a picture.
function cellsOf() {
  const own = layers.find(({ name }) => name === "colour");
  if (!own || z || header.origin || !usual) return null;
  const [[west, east], [south, north]] = frameOf();
  const scale = CELL_PIXELS / Math.max(east - west, north - south);
  const [width, height] = [east - west, north - south].map((side) => Math.ceil(side * scale));
  const nearest = new Float32Array(width * height).fill((NEAR * usual * scale) ** 2);
  const image = new ImageData(width, height);
  const colors = onGround(own.colors).map(rgba);
  const reach = NEAR * usual * scale;
  for (let node = 0; node < x.length; node++) {
    const [across, down] = [(x[node] - west) * scale, (north - y[node]) * scale];
    for (let row = Math.max(Math.floor(down - reach), 0); row < Math.min(down + reach, height); row++) {
      for (let column = Math.max(Math.floor(across - reach), 0); column < Math.min(across + reach, width); column++) {
        const [pixel, distance] = [row * width + column, (column + 0.5 - across) ** 2 + (row + 0.5 - down) ** 2];
        if (distance >= nearest[pixel]) continue;
        nearest[pixel] = distance;
        image.data.set(colors[own.codes[node]], 4 * pixel);
      }
    }
  }
  const cells = element("canvas", { width, height });
  cells.getContext("2d").putImageData(image, 0, 0);
  return { left: west, top: north, right: east, bottom: south, cells };
}
