// Edges that are no straight lines: those that would pass behind other nodes bend around them, and those between
// opposite borders of a lattice are stubs that leave it.

const STUB = 0.45; // of the distance of rows of a lattice
const [PASSED, FARTHEST] = [0.2, 16]; // of the usual distance of nodes, and in all: nearer edges seem to end at a third node
const BENDS = [0, 0.04, -0.04, 0.08, -0.08, 0.12, -0.12, 0.16, -0.16, 0.2, -0.2, 0.3, -0.3]; // relative to the length of an edge
const BEND_COST = 3; // relative to a node that an edge would pass behind
const MAX_BENT = 1000; // edges; more are too close to each other to be followed
let inRow = Infinity; // least distance of nodes in a layer
let inLattice = Infinity; // distance of nodes next to each other in a lattice
const bends = { x: [], y: [] }; // places of the points of such edges, numbered behind the nodes

const pointX = (point) => (point < x.length ? x[point] : bends.x[point - x.length]);
const pointY = (point) => (point < x.length ? y[point] : bends.y[point - x.length]);

// Of each edge that is no straight line its polylines, by number.
function findRoutes() {
  const origin = header.origin || "";
  if (header.metres) return routesOfStreets();
  if (origin.startsWith("in layers")) return routesBetweenLayers();
  if (origin.startsWith("drawn row by row")) return routesAcrossBorders();
  const isStraight = header.bonds || header.picture || z || streets.length > 2 * MAX_BENT;
  return isStraight ? new Map() : routesAroundNodes();
}

function addPoint(across, up) {
  bends.x.push(across);
  bends.y.push(up);
  return x.length + bends.x.length - 1;
}

function routesOfStreets() {
  const routeOf = ([edge, bends]) => [Number(edge), [[streets[2 * edge], ...bends.map((place) => addPoint(...place)), streets[2 * edge + 1]]]];
  return new Map(Object.entries(header.routes).map(routeOf));
}

function routesBetweenLayers() {
  const layers = new Map(); // x of the nodes of a layer by its y, both in order
  for (let node = 0; node < x.length; node++) layers.set(y[node], [...(layers.get(y[node]) || []), x[node]]);
  for (const row of layers.values()) {
    row.sort((a, b) => a - b);
    for (let i = 1; i < row.length; i++) inRow = Math.min(inRow, row[i] - row[i - 1]);
  }
  const routes = new Map();
  for (const [edge, passed] of Object.entries(header.routes)) {
    const [from, to] = [streets[2 * edge], streets[2 * edge + 1]];
    const curve = smooth([[x[from], y[from]], ...passed, [x[to], y[to]]]);
    routes.set(Number(edge), [[from, ...curve.map((place) => addPoint(...place)), to]]);
  }
  return routes;
}

// Return places of a smooth curve through places that lie below each other, without its ends.
function smooth(places) {
  const slope = (i) => {
    const [before, after] = [places[Math.max(i - 1, 0)], places[Math.min(i + 1, places.length - 1)]];
    return (after[0] - before[0]) / (after[1] - before[1]);
  };
  const curve = [];
  for (let i = 1; i < places.length; i++) {
    const [[left, top], [right, bottom]] = [places[i - 1], places[i]];
    const high = bottom - top;
    for (let step = 1; step <= STEPS; step++) {
      const [t, rest] = [step / STEPS, 1 - step / STEPS];
      // The cubic with the places and slopes at both ends (Hermite).
      const ends = rest * rest * (1 + 2 * t) * left + t * t * (1 + 2 * rest) * right;
      curve.push([ends + t * rest * high * (rest * slope(i - 1) - t * slope(i)), top + t * high]);
    }
  }
  return curve.slice(0, -1);
}

// Each edge bends as little as keeps it clear of other nodes, to the side where they are not.
function routesAroundNodes() {
  const routes = new Map();
  const clear = Math.min(PASSED * usual, FARTHEST);
  for (let edge = 0; edge < streets.length / 2; edge++) {
    const [from, to] = [streets[2 * edge], streets[2 * edge + 1]];
    const others = [...x.keys()].filter((node) => node !== from && node !== to);
    let [best, least] = [0, Infinity];
    for (const bend of BENDS) {
      const curve = arcOf(from, to, bend, 32);
      const isNear = (node) => curve.some(([across, up]) => (across - x[node]) ** 2 + (up - y[node]) ** 2 < clear ** 2);
      const passed = others.filter(isNear).length;
      const cost = passed + BEND_COST * Math.abs(bend);
      if (cost < least) [best, least] = [bend, cost];
      if (!passed) break;
    }
    if (best) routes.set(edge, [[from, ...arcOf(from, to, best, STEPS).map((place) => addPoint(...place)), to]]);
  }
  return routes;
}

// Return places of a curve between two nodes (a quadratic Bézier), without its ends.
function arcOf(from, to, bend, steps) {
  const [across, up] = [x[to] - x[from], y[to] - y[from]];
  return Array.from({ length: steps - 1 }, (_, i) => {
    const t = (i + 1) / steps;
    const aside = 2 * t * (1 - t) * bend;
    return [x[from] + t * across + aside * up, y[from] + t * up - aside * across];
  });
}

function routesAcrossBorders() {
  const routes = new Map();
  inLattice = Math.hypot(x[1] - x[0], y[1] - y[0]);
  const row = inLattice * 1.5;
  for (let edge = 0; edge < streets.length / 2; edge++) {
    const [from, to] = [streets[2 * edge], streets[2 * edge + 1]];
    const along = [x[to] - x[from], y[to] - y[from]];
    if (along.every((far) => Math.abs(far) < row)) continue;
    const [across, up] = along.map((far) => STUB * (Math.abs(far) < row ? far : -Math.sign(far) * usual));
    routes.set(edge, [[from, addPoint(x[from] + across, y[from] + up)], [to, addPoint(x[to] - across, y[to] - up)]]);
  }
  return routes;
}

// Straight pieces of all edges, so wide. Where edges have directions, those that end at a target have an arrow, and
// those that begin at an edge's source if the edge goes both ways.
function piecesOf(routes, isOneWay, isDashed, wide) {
  const pieces = [];
  for (let edge = 0; edge < streets.length / 2; edge++) {
    const lines = routes.get(edge) || [[streets[2 * edge], streets[2 * edge + 1]]];
    for (const line of lines) {
      for (let i = 1; i < line.length; i++) {
        const isLast = line[i] === streets[2 * edge + 1];
        const isFirst = line[i - 1] === streets[2 * edge] && isOneWay && !isOneWay[edge];
        const lane = isDashed && isDashed[edge] ? DETOUR : !isOneWay ? 0 : isFirst && isLast ? BOTH_WAYS : isLast ? ONE_WAY : isFirst ? BACKWARD : 0;
        pieces.push((line[i - 1] | (wide[edge] << 28)) >>> 0, (line[i] | (lane << 28)) >>> 0);
      }
    }
  }
  return Uint32Array.from(pieces);
}
