// The nodes' own ids next to them, those of large nodes first: where every other node is clearly farther, no other
// label is, and few edges cross them or end. A label without such a place is left out until the reader zooms in.

const LETTERS = 20; // of an id at most
const HUBS = 3; // nodes of most neighbours, which are always named
const RING = 2; // CSS pixels of the ring around a node
const LETTER_SIZE = 12; // CSS pixels
const HALF_LINE = 5; // CSS pixels from the middle of a label to its top
const GAP = 3; // CSS pixels between a node and its label
const CLEAR_OF_OTHERS = 9; // CSS pixels between a label and other nodes
const FAR_FROM_OTHERS = 24; // CSS pixels at which it cannot be taken for that of another node
const CLEARLY = 12; // CSS pixels that its own node is nearer than any other
const COST = { crossed: 5, close: 5, away: 1, side: 3, aslant: 8, taken: 50 }; // of a square with an edge, of a node that is nearly as near, of a pixel, of a later side, of a square that is another's
const [HEAD, LIT] = [4, 4]; // edges that a square with the head of an arrow, or with an edge that is lit, counts for
const AWAY = [0, 5]; // CSS pixels that a label may be away from its usual place
const CELL = 4; // CSS pixels: what lies where is remembered in squares
const MANY_IN_SIGHT = 2000; // nodes of which no label would have room
const BETWEEN_LABELS = 5; // CSS pixels
// Right and up, in the order of preference; halves lie between the others.
const SIDES = [
  [1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [1, -1], [-1, 1], [-1, -1],
  [1, 0.5], [1, -0.5], [-1, 0.5], [-1, -0.5], [0.5, 1], [0.5, -1], [-0.5, 1], [-0.5, -1],
];
const [FREE, TAKEN] = [-1, -2]; // squares near a node alone have its number
let ranked = []; // nodes by number of neighbours; the first is described at first

const degreeOf = (node) => graph.first[node + 1] - graph.first[node];

// Names of classes at their communities, the largest first: where most nodes of each lie together, and no other name
// is. Where nodes have names of their own, these are drawn.
const CLASS_LETTER_SIZE = 14; // CSS pixels
const CASING = 5; // CSS pixels of the ground around letters
const VICINITY = 0.1; // of the graph's width, in which the members of a class are counted
const CANDIDATES = 200; // members that may be the middle of their class
const [APART, SECOND] = [0.4, 0.75]; // of the graph's width, and of the members near the middle, from which there are two
let middles = []; // nodes of classes or places that have names, and these

function findMiddles() {
  middles = (header.places || []).map(([name, ...place]) => [addPoint(...place), name]);
  const layer = named("class");
  const isComputed = header.origin && header.origin.startsWith("layout computed");
  if (!layer || header.ids || !isComputed || /^(class )?\d/.test(layer.labels[0])) return;
  const reach = VICINITY * state.extent[0];
  const order = [...layer.labels.keys()].sort((a, b) => layer.counts[b] - layer.counts[a]);
  for (const code of order.filter((code) => layer.counts[code] && layer.labels[code] !== "no class")) {
    const members = [...x.keys()].filter((node) => layer.codes[node] === code);
    const near = (node) => members.filter((other) => Math.hypot(x[node] - x[other], y[node] - y[other]) < reach).length;
    const step = Math.ceil(members.length / CANDIDATES);
    const candidates = members.filter((_, i) => i % step === 0).map((node) => [near(node), node]);
    const [most, middle] = candidates.reduce((best, each) => (each[0] > best[0] ? each : best));
    middles.push([middle, layer.labels[code]]);
    // A class that lies in two communities has its name at both.
    const isApart = ([, node]) => Math.hypot(x[node] - x[middle], y[node] - y[middle]) > APART * state.extent[0];
    const [members_near, second] = candidates.filter(isApart).reduce((best, each) => (each[0] > best[0] ? each : best), [0]);
    if (members_near > SECOND * most) middles.push([second, layer.labels[code]]);
  }
}

// On the communities of what a run predicts, rings in the colour of the true class tell which test nodes it has wrong.
const hasRings = ({ name }) => middles.length > 0 && !header.places && name === "predicted class" && Boolean(named("right or wrong"));

function drawWrong(pen) {
  if (state.node >= 0 || !hasRings(state.layer)) return;
  const { codes } = named("right or wrong");
  const truth = named("class");
  const colors = onGround(truth.colors);
  for (let node = 0; node < x.length; node++) {
    if (codes[node] !== WRONG || !passes(node)) continue;
    cased(pen, node, ringRadius(node) + 1, [ink("ground"), 4], [colors[truth.codes[node]], 2]);
  }
}

function drawClassNames(pen) {
  if (!header.places && state.node >= 0) return;
  Object.assign(pen, { font: `${header.places ? "12" : `600 ${CLASS_LETTER_SIZE}`}px ${ink("font")}, sans-serif`, textAlign: "center", textBaseline: "middle" });
  const { labels = [], colors } = state.layer;
  const taken = state.layer.levels && state.node >= 0 ? [state.label] : [];
  for (const [node, name] of middles) {
    const [across, down] = placeOf(node);
    const half = pen.measureText(name).width / 2 + GAP;
    if (taken.some((other) => Math.abs(other.down - down) < 1.5 * CLASS_LETTER_SIZE && Math.abs(other.across - across) < other.half + half)) continue;
    taken.push({ across, down, half });
    const color = labels.includes(name) ? asLetters(onGround(colors)[labels.indexOf(name)]) : ink("ink"); // it belongs to its nodes
    Object.assign(pen, { fillStyle: color, strokeStyle: ink("ground"), lineJoin: "round", lineWidth: CASING });
    pen.strokeText(name, across, down); // hides the dots behind letters, and none beside them
    pen.fillText(name, across, down);
  }
}

function startLabels() {
  findMiddles();
  if (header.ids) ranked = Array.from(x.keys()).sort((a, b) => degreeOf(b) - degreeOf(a));
  if (header.numbers) ranked = [0, ...ranked.filter(Boolean)]; // the middle
  state.edges = [];
}

function drawLabels(pen) {
  if (!ranked.length || state.layer.levels) return;
  const { width, height } = paneBoxes()[0];
  const [middle_x, middle_y] = view.toScreen(0, 0);
  const at = (point) => [middle_x + pointX(point) * view.metre, middle_y - pointY(point) * view.metre];
  const isInSight = ([across, down]) => across > 0 && across < width && down > 0 && down < height;
  const seen = ranked.filter((node) => passes(node) && isInSight(at(node)));
  if (seen.length > MANY_IN_SIGHT) return;

  const columns = Math.ceil(width / CELL);
  const owners = new Int32Array(columns * Math.ceil(height / CELL)).fill(FREE);
  const vicinity = new Int32Array(owners.length).fill(FREE); // squares near a node, or near several
  const crossed = new Uint8Array(owners.length); // squares with edges
  const squaresOf = (left, top, right, bottom) => {
    const squares = [];
    const [first, last] = [Math.max(Math.floor(left / CELL), 0), Math.min(Math.floor(right / CELL), columns - 1)];
    for (let row = Math.max(Math.floor(top / CELL), 0); row < bottom / CELL; row++) {
      for (let column = first; column <= last; column++) squares.push(row * columns + column);
    }
    return squares;
  };
  const take = (squares) => squares.forEach((square) => (owners[square] = TAKEN));
  // The node that is described has a ring; it and the largest ones have their names whatever lies there.
  const described = describedNode();
  const isNamed = (node) => node === described || ranked.indexOf(node) < HUBS;
  const radiusOf = (node) => (node === described ? markRadius(node) + RING : (sizeOf(node) * state.diameter) / 2);
  const distanceTo = (node, left, middle, long) => {
    const [across, down] = at(node);
    const aside = Math.max(left - across, across - left - long, 0);
    const above = Math.max(Math.abs(down - middle) - HALF_LINE, 0);
    return Math.hypot(aside, above) - radiusOf(node);
  };

  // 1. Around each node, squares are its own; those near two nodes are nobody's.
  for (const node of seen) {
    const [across, down] = at(node);
    for (const [zone, clear] of [[owners, CLEAR_OF_OTHERS], [vicinity, FAR_FROM_OTHERS]]) {
      const reach = radiusOf(node) + clear;
      for (const square of squaresOf(across - reach, down - reach, across + reach, down + reach)) {
        zone[square] = zone[square] === FREE ? node : TAKEN;
      }
    }
  }

  // 2. Edges are in the way of labels, and their heads even more, as are buttons.
  const isSeen = new Uint8Array(x.length);
  for (const node of seen) isSeen[node] = 1;
  const isOneWay = header.one_way && array(header.one_way);
  const lit = new Set(state.edges.map(([, , edge]) => edge));
  for (let edge = 0; edge < streets.length / 2; edge++) {
    const [from, to] = [streets[2 * edge], streets[2 * edge + 1]];
    if (!$("lines").checked || !(isSeen[from] || isSeen[to])) continue;
    for (const line of routes.get(edge) || [[from, to]]) {
      for (let i = 1; i < line.length; i++) {
        const [[ax, ay], [bx, by]] = [at(line[i - 1]), at(line[i])];
        const steps = Math.ceil(Math.hypot(bx - ax, by - ay) / CELL);
        for (let step = 0; step <= steps; step++) {
          const [across, down] = [ax + ((bx - ax) * step) / steps, ay + ((by - ay) * step) / steps];
          const square = Math.floor(down / CELL) * columns + Math.floor(across / CELL);
          if (isInSight([across, down])) crossed[square] = Math.max(crossed[square], lit.has(edge) ? LIT : 1);
        }
      }
      if (!isOneWay) continue;
      for (const [end, before] of [[to, line.at(-2)], ...(isOneWay[edge] ? [] : [[from, line[1]]])]) {
        const [tip, behind] = [at(end), at(before)];
        for (const far of [3, 9]) {
          const share = (radiusOf(end) + far) / Math.max(Math.hypot(behind[0] - tip[0], behind[1] - tip[1]), 1);
          const [across, down] = tip.map((at, i) => at + share * (behind[i] - at));
          for (const square of squaresOf(across - 4, down - 4, across + 4, down + 4)) crossed[square] = HEAD;
        }
      }
    }
  }
  for (const { offsetLeft, offsetTop, offsetWidth, offsetHeight } of [$("buttons"), $("credit")]) {
    take(squaresOf(offsetLeft, offsetTop, offsetLeft + offsetWidth, offsetTop + offsetHeight));
  }

  for (const [across, down] of state.numbers) take(squaresOf(across - 10, down - 7, across + 10, down + 7));

  // 3. Each label is right or left of its node, aslant, above or below: the first clear place that few edges cross.
  const around = state.node < 0 ? null : new Set([state.node, ...state.ball.keys()]);
  Object.assign(pen, { font: `${LETTER_SIZE}px ${ink("font")}, sans-serif`, textAlign: "left", textBaseline: "middle" });
  Object.assign(pen, { strokeStyle: ink("ground"), fillStyle: ink("ink"), globalAlpha: 1, lineJoin: "round", lineWidth: 4 });
  for (const node of seen.sort((a, b) => (b === described) - (a === described))) {
    if (around && !around.has(node)) continue;
    const id = header.ids[node];
    const text = id.length > LETTERS ? `${id.slice(0, LETTERS - 1)}…` : id;
    const long = pen.measureText(text).width;
    const [across, down] = at(node);
    const radius = around && node !== described ? ringRadius(node) : radiusOf(node);
    const [far, near] = [radius + GAP, 0.7 * radius + GAP];
    let [best, least, covered] = [null, Infinity, []];
    SIDES.flatMap((side, order) => AWAY.map((away) => [...side, away, order])).forEach(([right, up, away, order]) => {
      const beside = (Math.abs(up) === 1 ? near : far) + away;
      const above = (Math.abs(right) === 1 ? near : far) + away;
      const left = across - long / 2 + right * (beside + long / 2);
      const middle = down - up * (above + HALF_LINE);
      if (left < 2 || left + long > width - 2) return;
      const squares = squaresOf(left, middle - HALF_LINE, left + long, middle + HALF_LINE);
      const taken = squares.filter((square) => owners[square] !== FREE && owners[square] !== node).length;
      if (taken && !isNamed(node)) return;
      const isClose = squares.some((square) => vicinity[square] !== FREE && vicinity[square] !== node);
      const edges = squares.reduce((sum, square) => sum + crossed[square], 0);
      const cost = COST.side * order + COST.aslant * Boolean(right && up) + COST.crossed * edges + COST.close * isClose + COST.away * away + COST.taken * taken;
      if (cost >= least) return;
      const nearest = distanceTo(node, left, middle, long) + CLEARLY;
      if (isClose && !isNamed(node) && seen.some((other) => other !== node && distanceTo(other, left, middle, long) < nearest)) return;
      [best, least] = [[left, middle], cost];
      covered = squaresOf(left - BETWEEN_LABELS, middle - HALF_LINE, left + long + BETWEEN_LABELS, middle + HALF_LINE);
    });
    if (!best) continue;
    take(covered);
    pen.strokeText(text, ...best); // a casing parts it from edges
    pen.fillText(text, ...best);
  }
}
