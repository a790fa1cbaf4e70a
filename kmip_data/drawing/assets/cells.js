// Superpixels whose picture is not in the page, as cells: each pixel has the colour of the nearest node, if one is near.

const CELL_PIXELS = 300; // of the longer side
const NEAR = 2; // distances between nodes

// Return the cells and their box, or null for a graph whose nodes are no regions of a picture.
function cellsOf() {
  const own = layers.find(({ name }) => name === "colour");
  if (!own || z || header.origin || !usual) return null;
  const [[west, east], [south, north]] = [x, y].map((places) => {
    const [low, high] = extent(places);
    return [low - usual / 2, high + usual / 2];
  });
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
