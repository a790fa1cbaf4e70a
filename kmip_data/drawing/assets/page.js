// The page around the graph: what it is coloured by, and the columns of a node.

const REACH = 24; // CSS pixels from which a node is pointed at
const BOND = 130; // CSS pixels of a bond at most, where all of a molecule is seen
const [DIMMED, DIMMED_DARK] = [0.22, 0.4]; // strength of what is not around the held node, by ground
const OVER_PICTURE = 0.13; // strength of edges: the picture comes first
const LEAST_PITCH = 16; // CSS pixels between nodes of a lattice; where it would have less, nodes are cells of a field
const [READ_PITCH, GAP_FROM] = [32, 8]; // CSS pixels of a cell with a text, and of one with a line around it
const OF_BOND = 0.55; // diameter of an atom
const OF_SYMBOL = 0.7; // diameter of a node with a symbol, of the usual distance
const BOND_LENGTHS = 32; // lengths of a bond in its width
const COVER = 0.1; // of the graph's box that edges cover at full strength
const [CLASSED, CLASSED_DARK] = [0.55, 0.75]; // share of its class's colour in an edge inside a class
const NO_SPLIT = "in no split"; // label of such nodes
const DIRECTION = "direction of edges"; // name of a layer
const KEY_LETTERS = 32; // of a key at most; its ends tell it from others
const [WRONG, WRONG_SIZE] = [1, 1.7]; // code of test nodes that are wrong, and their size relative to others
// Codes of the atoms' features by the Open Graph Benchmark.
const WORDS = { hybridisation: ["sp", "sp2", "sp3", "sp3d", "sp3d2"], chirality: ["none", "clockwise", "anticlockwise"] };
const canvas = $("canvas");

// What is loaded once, shared by all scripts of the page.
let headers, header, array, nodeNumbers, x, y, z, streets, routes, columns, layers, influence, view, drawing, turning, usual;
let isField = false; // nodes are cells: edges would be too short to be seen
let measured; // what edges are as wide as: name, limits, a function from the edge to its value, and the widths
// What the reader has chosen.
const state = {
  layer: null, degree: null, mean: 1, box: null, extent: [1, 1], length: 0, at: null, binOf: null, only: new Set(), panes: 1,
  hovered: -1, node: -1, given: -1, ball: new Map(), edges: [], numbers: [], path: null, links: [], due: false,
};

async function startPage() {
  headers = [...document.querySelectorAll("script.header")];
  const shared = new URLSearchParams(location.hash.slice(1));
  const record = Math.min(Math.max(Math.trunc(Number(shared.get("record"))) || 0, 0), headers.length - 1);
  const { about, diverging, docs, options, ramp } = JSON.parse(headers[0].textContent); // those of all records
  header = { ...JSON.parse(headers[record].textContent), about, diverging, docs, options, ramp };
  // Layers of the second run have its name behind theirs.
  (header.explore.runs || []).forEach((run, i, runs) => (run.suffix = i ? ` (${shortName(run.run, runs)})` : ""));
  const data = headers[record].nextElementSibling;
  array = await readArrays(data.textContent);
  data.remove();
  [x, y] = [header.x, header.y].map(array);
  nodeNumbers = header.numbers || [...x.keys()];
  streets = readPairs(array(header.streets));
  z = header.z && array(header.z);
  columns = new Map([...header.layers, ...header.columns].filter(({ values }) => values).map((each) => [each.name, readColumn(each, array)]));
  layers = header.layers.map(readLayer);
  // Classes in columns of their own, such as town=Bonn and town=Rome, come before what is counted.
  const counted = layers.findIndex(({ name }) => DEGREES.includes(name));
  layers.splice(counted < 0 ? layers.length : counted, 0, ...oneHotLayers(header.columns));
  influence = readInfluence(header.explore.influence);
  // Any other column can be coloured by, too.
  const others = header.columns.map((column) => Object.assign(readLayer(column), { isColumn: true, isUnused: isUnused(column) }));
  const note = "of each node's features on the score of the ringed one (absolute derivative), in % of the strongest in the same run; logarithmic scale";
  const ways = [...(influence.length ? [{ name: "influence", levels: true, note }] : []), ...layers, ...others];
  let box = [x, y].map(extent);
  let [[west, east], [south, north]] = box;
  usual = Math.sqrt(((east - west) * (north - south)) / x.length);
  header.picture = header.picture || cellsOf();
  routes = findRoutes();
  box = [[...x, ...bends.x], [...y, ...bends.y]].map(extent); // stubs leave a lattice
  measured = header.picture ? undefined : (header.of_edges || []).find(({ limits }) => limits && limits.least < limits.most);
  if (measured) {
    measured.of = readColumn(measured, array);
    measured.widths = widths();
  }
  let lines = streets;
  if (routes.size || header.one_way || header.longer || measured) {
    const [isOneWay, isDashed] = [header.one_way, header.longer].map((marks) => marks && array(marks));
    lines = piecesOf(routes, isOneWay, isDashed, measured ? measured.widths : new Uint8Array(streets.length / 2));
  }
  if (header.bonds) lines = linesOf(streets, array(header.bonds), x, y);
  symbols = readSymbols();
  const areas = Object.entries(header.ground || {}).map(([kind, axes]) => {
    const [across, up] = axes.map(array);
    const [first] = Array.from(across, (at, i) => addPoint(at, up[i]));
    return { kind, first, count: across.length };
  });
  drawing = makeDrawing(canvas, { areas, count: x.length, points: x.length + bends.x.length, pairs: lines, deep: Boolean(z), arrows: Boolean(header.one_way) });
  // What can be turned stays inside a circle about its middle.
  const reach = z && x.reduce((most, _, i) => Math.max(most, Math.hypot(x[i], y[i], z[i])), 1);
  const sides = [x, y, z || y].map(extent).map(([low, high]) => high - low); // before it is turned
  const side = 0.85 * (reach || 0);
  if (z) box = [[-side, side], [-side, side]];
  if (header.picture) box = [[header.picture.left, header.picture.right], [header.picture.bottom, header.picture.top]];
  [[west, east], [south, north]] = box;
  state.box = box;
  state.extent = [Math.max(east - west, 1), Math.max(north - south, 1)];
  const size = () => [paneBoxes()[0].width, paneBoxes()[0].height];
  turning = z && makeTurning(x, y, z, reach, (depth) => {
    drawing.move(x, y, depth);
    box = [x, y].map(extent);
    if (view.moved) redraw();
    else view.fit(); // all of it stays in view from every side, until someone zooms
  });
  const ends = () => Array.from($("panes").querySelectorAll("span"), (each) => each.offsetTop + each.offsetHeight);
  // What titles, buttons and credit take from a pane, right, above and below, and the margin around the graph.
  const covered = () => {
    const [buttons, phone] = [$("buttons"), matchMedia("(max-width: 720px)").matches];
    const margin = phone ? 10 : header.ids ? 60 : 30; // labels stand beside the first and the last node
    if (isField) return [0, 0, 0, 10];
    const titles = state.layer && state.layer.levels ? Math.max(0, ...ends()) + 10 : 0;
    const above = Math.max(titles, phone ? buttons.offsetTop + buttons.offsetHeight : 0) - margin;
    const isColumn = buttons.offsetHeight > buttons.offsetWidth; // a row of buttons lies next to titles
    const right = phone || state.panes > 1 || !isColumn ? 0 : buttons.offsetWidth;
    return [right, Math.max(above, 0), Math.max($("credit").offsetHeight + 20 - margin, 0), margin];
  };
  const closest = () => (header.bonds ? BOND / usual : Infinity);
  view = makeView(size, () => box, redraw, { turn: turning && turning.turn, covered, closest });
  usual = Math.sqrt(((east - west) * (north - south)) / x.length);
  isField = inLattice * view.whole() < LEAST_PITCH;
  state.length = totalLength();
  if (header.bonds) {
    usual = state.length / Math.max(streets.length / 2, 1); // a chain leaves most of its box empty
    const rim = (OF_BOND / 2) * usual * Math.max(...symbols.map(({ size = 1 }) => size), 1);
    box = box.map(([low, high]) => [low - rim, high + rim]); // discs, too, are inside
  }
  if (turning) turning.turn(0, 0);
  else if (bends.x.length) drawing.move([...x, ...bends.x], [...y, ...bends.y]);
  else drawing.move(x, y);

  startRecords(record, headers.length);
  $("within").placeholder = `Search ${columns.size.toLocaleString("en")} columns`;
  $("within").ariaLabel = $("within").placeholder;
  $("within").addEventListener("input", () => describe(state.node >= 0 ? state.node : state.hovered));
  $("of").hidden = !header.about;
  $("of").textContent = header.about ?? "";
  const { key = "" } = header;
  $("key").title = key;
  $("key").textContent = key.length > KEY_LETTERS ? `${key.slice(0, KEY_LETTERS / 2)}…${key.slice(-KEY_LETTERS / 2)}` : key;
  $("facts").textContent = sizeText(sides);
  $("build").hidden = !header.options;
  $("build").lastElementChild.textContent = header.options;
  listWays(ways);
  $("in").addEventListener("click", () => view.zoom(1.5));
  $("out").addEventListener("click", () => view.zoom(1 / 1.5));
  $("fit").addEventListener("click", () => view.fit());
  await startExtras();
  startOverview();
  listen(canvas, view, { hover, leave: () => hover(NaN, NaN), pick });
  // A window that changes its size still shows the whole graph, until someone moves it.
  new ResizeObserver(() => {
    showTitles();
    if (!view.moved) view.fit();
    else if (isField) view.center = wholeCells(view.center);
    drawNow(); // not in the next frame: this one would stretch what was drawn for the old size
  }).observe(canvas);
  DARK.addEventListener("change", () => colorBy(state.layer));
  $("scale").hidden = !header.metres && (!header.metre || turning); // in perspective a length has no one scale
  startExplorer();
  startLabels();
  describe(-1);
  // Influence is faint but for a few nodes: a page opens on it over a map, or where runs are compared, else on
  // what is right or wrong, if possible on the communities of classes.
  const opening = header.metres || influence.length > 1 ? ways[0] : ways.find(hasRings) || ways[influence.length];
  colorBy(ways.find(({ name }) => name === shared.get("by")) || opening);
  listWays.again();
  if (isField) {
    view.metre = READ_PITCH / inLattice;
    view.lookAt(wholeCells([0, 0]), view.zoomed());
  } else view.fit();
  startSharing(shared, record);
  drawNow();
  $("message").hidden = true;
  window.cityMap = { view, x, y, columns, drawNow, find: nodeAt };
  document.body.dataset.state = "ready";
}

const OF_RUNS = /^(influence|attention|both runs|(right or wrong|predicted class|(absolute )?error|prediction)( \(.*\))?)$/;
const MANY = 20; // columns, or ways to colour, from which they can be searched, and those of no use are left out
const LISTED_WAYS = 100;
const isSearched = (name, text) => name.toLowerCase().includes(text.toLowerCase());

// A column has one value for all nodes.
const isUnused = ({ limits, counts }) => (limits ? limits.least === limits.most && !limits.missing : counts.filter(Boolean).length === 1);

// The ways to colour by, in groups; those that have a word of the search in their name.
function listWays(ways) {
  const group = ({ name, isColumn }) => (isColumn ? "Columns" : OF_RUNS.test(name) ? "Runs" : "Data");
  const list = () => {
    const text = $("find").value;
    const isWanted = (way) => (text ? isSearched(way.name, text) : way === state.layer || ways.length < MANY || !way.isUnused);
    const wanted = ways.map((way, value) => ({ way, value })).filter(({ way }) => isWanted(way));
    const listed = wanted.filter(({ way }, i) => i < LISTED_WAYS || way === state.layer);
    const groups = ["Runs", "Data", "Columns"].map((label) => {
      const options = listed.filter(({ way }) => group(way) === label).map(({ way, value }) => element("option", { value, textContent: titleOf(way.name) }));
      return element("optgroup", { label }, ...options);
    });
    const more = wanted.length - listed.length;
    const rest = element("optgroup", { label: `${more.toLocaleString("en")} more: search them` });
    $("by").replaceChildren(...groups.filter((each) => each.children.length), ...(more ? [rest] : []));
    $("by").value = ways.indexOf(state.layer);
  };
  $("find").hidden = ways.length < MANY;
  $("find").placeholder = `Search ${ways.length.toLocaleString("en")} layers and columns`;
  $("find").ariaLabel = $("find").placeholder;
  $("find").addEventListener("input", list);
  $("find").addEventListener("keydown", ({ key }) => {
    if (key === "Enter" && $("by").options.length) colorBy(ways[$("by").options[0].value]); // the first that was found
  });
  $("by").addEventListener("change", () => $("by").value && colorBy(ways[$("by").value]));
  list();
  listWays.again = list;
}

// Buttons and keys for the records of the page. Another record is read when the page loads again.
function startRecords(record, count) {
  const turn = (to) => {
    if (to < 0 || to >= count) return;
    recordShown = to; // what is remembered until then is of the same record
    location.hash = new URLSearchParams({ record: to, by: state.layer.name }); // read when the page loads again
  };
  const [previous, next] = [$("previous"), $("next")];
  previous.disabled = record === 0;
  next.disabled = record === count - 1;
  previous.addEventListener("click", () => turn(record - 1));
  next.addEventListener("click", () => turn(record + 1));
  addEventListener("keydown", ({ key, target, ctrlKey, metaKey, altKey }) => {
    if (ctrlKey || metaKey || altKey || target.matches("input, select")) return;
    if (key === "n") turn(record + 1);
    if (key === "p") turn(record - 1);
  });
  $("records").hidden = count === 1;
  const place = element("small", { textContent: header.place ? `${header.place.toLowerCase()} in the data` : "" });
  $("records").lastElementChild.replaceChildren(`Graph ${record + 1} of ${count} on this page`, place);
}

// The width of each edge, from 0 to 15, by the first of its columns that has numbers.
function widths() {
  const { low, high } = measured.limits;
  return Uint8Array.from({ length: streets.length / 2 }, (_, edge) => 15 * Math.min(Math.max((measured.of(edge) - low) / (high - low), 0), 1));
}

// How large the graph is, with its sides if it is in space, and where its positions come from.
function sizeText(sides) {
  const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  const edges = header.edges ?? counted(streets.length / 2, "street");
  const isDashed = header.longer && array(header.longer).some(Boolean);
  const dashed = isDashed && `dashed: over ${header.max_detour} times as long as drawn`;
  const space = z && header.metre && sides.map((side) => written(Number((side / header.metre).toFixed(2)))).join("\u00a0×\u00a0");
  const source = header.bonds ? `bonds${columns.has("hydrogens") ? " and hydrogens" : ""} as in the data, positions by RDKit` : header.origin;
  const parts = partsOf(header.explore.split);
  const split = parts && `${isDrawn(parts.name) ? "drawn " : ""}split ${header.explore.split}`;
  const halves = header.metres && "streets have the colours of their ends";
  const origin = [space && `${space}\u00a0m`, source, halves, dashed, split].filter(Boolean).join("; ");
  return `${header.size ?? `${counted(x.length, header.node_noun)}, ${edges}`}${origin && `; ${origin}`}`;
}

// The length of all edges, as they are seen or, in space, before they are turned.
function totalLength() {
  let sum = 0;
  for (let i = 0; i < streets.length; i += 2) sum += Math.hypot(x[streets[i]] - x[streets[i + 1]], y[streets[i]] - y[streets[i + 1]]);
  return sum;
}

// Switches for edges and for the picture below superpixels, where there are any.
async function startExtras() {
  $("lines").addEventListener("change", redraw);
  $("extras").hidden = Boolean(header.metres);
  $("lines").parentElement.hidden = isField;
  if (header.bonds) $("lines").nextSibling.textContent = " Bonds";
  if (turning && streets.length / 2 > BANDS) { // a haze that says nothing
    $("lines").checked = $("lines").defaultChecked = false;
    $("lines").nextSibling.textContent = ` Edges (${header.edges.split(" ")[0]}; off at first)`;
  }
  const isOneWay = header.one_way && array(header.one_way);
  const hints = turning ? ["drag turns it"] : [];
  if (header.picture) hints.push(`${header.picture.cells ? "each cell: the region nearest to a node; " : ""}edges are faint until a node is held${isOneWay ? "; then they are arrows" : ""}`);
  else if (isOneWay && isOneWay.length > BANDS) hints.push("one line for each pair of joined nodes; directions are drawn at a held node");
  else if (isOneWay) hints.push(`arrow: from ${header.ends}${isOneWay.every(Boolean) ? "" : "; two heads: both ways"}${measured && !isOneWay.every(Boolean) ? ", as wide as the larger of both" : ""}`);
  if (header.bonds && symbols.length) hints.push("carbon has no letter");
  if (header.bonds && array(header.bonds).includes(AROMATIC)) hints.push("dashed: aromatic");
  if (symbolText) hints.push(symbolText);
  if (isField) hints.push("opens on a part of the grid, framed below; ⤢ shows all");
  $("ways").textContent = hints.join("; ");
  if (measured) { // a thin and a wide line
    const { name, limits } = measured;
    const sample = (height, value) => element("span", { className: "width" }, element("i", { style: `height: ${height}px` }), written(value));
    if (hints.length) $("ways").append(element("br"));
    $("ways").append(`${titleOf(name)}: `, sample(1.2, limits.least), sample(3.4, limits.most));
  }
  $("picture").parentElement.hidden = !header.picture;
  if (!header.picture) return;
  const picture = header.picture.cells || await createImageBitmap(new Blob([array(header.picture.bytes)], { type: "image/jpeg" }));
  drawing.show(header.picture, picture);
  $("picture").addEventListener("change", redraw);
}

// The panes in CSS pixels: one, or two next to each other, on a phone one above the other.
function paneBoxes() {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const [wide, high] = state.extent; // of the graph: next to each other if that shows it larger
  const across = Math.min(width / 2 / wide, height / high) >= Math.min(width / wide, height / 2 / high);
  const boxes = isField ? [[0, 0, ...fieldSides(width, height)]] : state.panes === 1 ? [[0, 0, width, height]] : across
    ? [[0, 0, width / 2, height], [width / 2, 0, width / 2, height]]
    : [[0, 0, width, height / 2], [0, height / 2, width, height / 2]];
  return boxes.map(([left, top, ...sides]) => ({ left, top, width: Math.max(sides[0], 1), height: Math.max(sides[1], 1) }));
}

// Where a field leaves a strip for buttons and one for scale and credit, in whole cells of the size that it opens with.
function fieldSides(width, height) {
  const free = [width - $("buttons").offsetWidth - 20, height - $("credit").offsetHeight - 8];
  return free.map((side) => Math.floor(side / READ_PITCH) * READ_PITCH);
}

function redraw() {
  if (state.due) return;
  state.due = true;
  requestAnimationFrame(drawNow);
}

// An edge inside a category has its colour.
const coloursEdges = (layer) => Boolean(layer.codes && !header.bonds && !header.metres && !isField && !isVerdict(layer) && layer.name !== DIRECTION);

// A molecule coloured by element is a structural formula; by anything else, its atoms are discs.
const isFormula = () => Boolean(header.bonds && state.layer.name === "element");

// Of what is right or wrong, what is wrong stands out: it is larger, on top, and in the one strong colour.
const isVerdict = ({ name }) => /^right or wrong/.test(name);
const standsOut = (node) => isVerdict(state.layer) && state.layer.codes[node] === WRONG;

function drawNow() {
  state.due = false;
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((side) => Math.max(1, Math.round(side * ratio)));
  for (const each of [canvas, $("overlay")]) if (each.width !== width || each.height !== height) Object.assign(each, { width, height });
  const panes = paneBoxes().map((box) => ({
    left: Math.round(box.left * ratio), bottom: height - Math.round((box.top + box.height) * ratio),
    width: Math.round(box.width * ratio), height: Math.round(box.height * ratio),
  }));
  // As large as nodes lie apart, but never so small or large that they cannot be seen or told apart.
  const least = header.metres ? 3.4 : 4;
  const pictured = Boolean(header.picture) && $("picture").checked;
  // In a layer, two nodes of the largest size, which is twice the usual one, do not touch; of a radius, 0.7 is colour.
  const apart = Math.min((z ? 1.1 : header.bonds ? OF_BOND : pictured ? 0.15 : symbols.length ? OF_SYMBOL : isSized() ? 0.5 : 0.35) * usual, 0.58 * inRow) * view.metre;
  const round = Math.min(Math.max(apart, least, 1.2 * Math.sqrt(view.zoomed())), header.bonds ? 64 : symbols.length ? 32 : 20);
  const pitch = inLattice * view.metre;
  const diameter = isField ? pitch - Number(pitch >= GAP_FROM) : round;
  state.diameter = diameter;
  const formula = Boolean(state.layer && isFormula());
  // A street is two fifths of a node wide, an edge or a bond, whose atoms are larger, a ninth. Edges that together
  // would cover more than COVER of the graph's box get thin, then pale, and come back when the reader zooms in. The wider the edges, the darker they are.
  const cover = state.length / (state.extent[0] * state.extent[1] * view.metre); // of edges one pixel wide
  const wide = Math.min(Math.max(diameter / 9, 1.1), header.bonds ? 5 : 1.6, Math.max(COVER / cover, 1.1));
  const bond = Math.min(Math.max((usual * view.metre) / BOND_LENGTHS, 1.1), 4);
  const band = header.metres ? Math.min(Math.max(0.4 * diameter, 1.5), 6) : formula ? bond : wide;
  const held = state.node >= 0;
  const pale = Math.min(COVER / (cover * band), 1);
  const strength = header.metres || formula ? 1 : pictured ? OVER_PICTURE * (held ? 0.4 : 1) : pale;
  const levels = Boolean(state.layer && state.layer.levels);
  const isClassed = state.layer && coloursEdges(state.layer);
  const isPale = isClassed || (state.layer && isVerdict(state.layer)); // edges between classes are paler than those inside
  const darkest = isPale ? 0.4 : 1;
  const dark = header.metres || held ? 0 : darkest * Math.min(Math.max((band - 1.1) / 1.9, 1 - strength), 1);
  const sizes = { metre: view.metre * ratio, diameter: diameter * ratio, band: band * ratio };
  // Where intersections would cover their streets, the streets alone are drawn, unless some nodes are picked out.
  const nodes = !header.metres || apart > 0.5 * least || state.only.size > 0 || state.node >= 0;
  const look = { tint: header.metres ? 0.8 : Number(formula), classed: !isClassed ? 0 : DARK.matches ? CLASSED_DARK : CLASSED, strength, lines: $("lines").checked && !isField, nodes, dark, bonds: Boolean(header.bonds), pictured, weighted: Boolean(measured), filled: isField, formula, levels };
  const quiet = header.metres && levels ? untouched() : ink("line");
  drawing.draw({ panes, center: view.center, ...sizes, ...look, quiet });
  if (!$("scale").hidden) drawScale();
  if (isField) frameOverview();
  drawMarks();
  remember();
}

// Where positions are computed from edges, nodes of many are larger: at most twice as large as most are. Sizes show
// the same edges as the colours, or all of them.
const isSized = () => /^(in layers|layout computed)/.test(header.origin);
function sizeOf(node) {
  if (header.bonds && symbols.length) return symbols[node].size;
  if (isVerdict(state.layer)) return standsOut(node) ? WRONG_SIZE : 1;
  if (!isSized()) return 1;
  return Math.min(Math.max(Math.sqrt(state.degree(node) / state.mean), 1), 2);
}

// Colour position, strength and size of every node, and how far on top it is: what is filtered out is gone, what is not held dims.
function updateLooks() {
  const near = new Set(state.node < 0 ? [] : [state.node, ...state.ball.keys(), ...state.links.map(({ key }) => key)]);
  for (let pane = 0; pane < state.panes; pane++) {
    const looks = drawing.looksOf();
    if (state.layer.levels) looksOfInfluence(pane, looks);
    else {
      for (let node = 0; node < x.length; node++) {
        const strength = !passes(node) ? 0 : !near.size || near.has(node) ? 1 : DARK.matches ? DIMMED_DARK : DIMMED;
        looks.set([state.at[node], strength, sizeOf(node) * (node === state.node && !isField ? 1.5 : 1), Number(node === state.node || standsOut(node))], 4 * node);
      }
    }
    // A curve looks like both of its ends, if these look alike, and a street like the nearer one.
    for (const [edge, lines] of routes) {
      const ends = [streets[2 * edge], streets[2 * edge + 1]];
      const [from, to] = ends.map((node) => 4 * node);
      const look = [looks[from] === looks[to] ? looks[from] : NONE, Math.min(looks[from + 1], looks[to + 1])];
      for (const point of lines.flat().filter((end) => end >= x.length)) {
        const [near, far] = ends.map((node) => Math.hypot(pointX(point) - x[node], pointY(point) - y[node]));
        const nearer = near < far ? from : to;
        looks.set([header.metres ? looks[nearer] : look[0], look[1]], 4 * point);
      }
    }
    drawing.look(pane, looks);
  }
  showTitles();
  if (isField) drawOverview();
  redraw();
}

function drawScale() {
  const metre = view.metre * (header.metre ?? 1); // pixels; of a cloud in its middle
  const longest = 112 / metre;
  const power = 10 ** Math.floor(Math.log10(longest));
  const length = [5, 2, 1].map((step) => step * power).find((step) => step <= longest);
  $("scale").style.width = `${length * metre}px`;
  $("scale").firstElementChild.textContent = length >= 1000 ? `${length / 1000} km` : `${written(length)} m`;
}

// A layer for each group of columns such as town=Bonn and town=Rome, of which each node has at most one.
function oneHotLayers(described) {
  const groups = new Map();
  for (const { name, labels } of described) {
    const [group, value] = name.split(/=(.*)/);
    if (value && labels) groups.set(group, [...(groups.get(group) || []), [value, columns.get(name)]]);
  }
  const made = [];
  for (const [name, members] of groups) {
    if (members.length < 2 || columns.has(name)) continue;
    const codes = Array.from(x, (_, node) => members.findIndex(([, column]) => column(node)));
    const labels = members.map(([value]) => value);
    if (codes.includes(-1)) labels.push(`no ${name}`);
    const counts = labels.map(() => 0);
    const known = codes.map((code) => (code < 0 ? members.length : code));
    for (const code of known) counts[code]++;
    const colors = () => labels.map((_, i) => (i < members.length ? hueNow(i) : ink("missing")));
    made.push({ name: `${name}=…`, labels, codes: known, counts, note: `columns ${name}=…`, get colors() { return [colors()]; } });
  }
  return made;
}

// What is to be predicted has the name of its column in the reader's files; a group of columns has that of the group.
function titleOf(name) {
  if (header.target && /^(class|target)$/.test(name) && named(name)) return header.target;
  if (/^(edges|bonds) of an? /.test(name)) return `number of ${name.split(" ")[0]}`;
  const group = name.replace(/=…$/, "");
  if (group !== name) return named(group) ? `column ${group}` : group;
  return name.replace(/ \[-?[\d.]+(, |-)-?[\d.]+\]$/, ""); // without the range of a field
}
const capital = (text) => text[0].toUpperCase() + text.slice(1);

// Of categories the codes; those of values stand for no categories.
function readLayer(layer) {
  if (layer.labels) {
    const labels = layer.labels.map((label) => inWords(layer.name, label));
    return { ...layer, codes: array(layer.codes), labels, get colors() { return quietMajority(layer); } };
  }
  if (!layer.codes || layer.values.count > 2 || layer.limits.missing) return { ...layer, codes: undefined };
  // Two numbers, such as −1 and 1, are categories.
  const codes = array(layer.codes);
  const labels = Array.from(array(layer.values), (value) => `${written(value)}${layer.unit ? ` ${layer.unit}` : ""}`);
  const counts = labels.map((_, code) => codes.filter((each) => each === code).length);
  return { ...layer, codes, labels, counts, get colors() { return [labels.map((_, i) => hueNow(i))]; } };
}

// In a field, the class of most cells is a pale ground, on which the others are marks.
function quietMajority({ colors, counts }) {
  const majority = counts.findIndex((count) => 2 * count > x.length);
  if (!isField || majority < 0) return colors;
  const pale = mixed(ink("ground"), ink("line"), 0.5);
  return [onGround(colors).map((color, i) => (i === majority ? pale : color))];
}

// The word for a code of a molecule's features, and the name of a class.
const inWords = (name, code) => (header.bonds && WORDS[name] ? WORDS[name][code] ?? "other" : /class$/.test(name) ? spaced(code) : code);

// Names of a published set are no identifiers; those of the reader's own files stay as they are.
const spaced = (name) => (header.target ? name : name.replaceAll("_", " "));

// What a layer says of a node.
function shown(layer, node) {
  if (layer.levels) return influence.map((run, pane) => `${shortName(run.name)} ${influenceText(pane, node)}`).join(", ");
  if (layer.codes) {
    const label = layer.labels[layer.codes[node]];
    const judged = label === NO_SPLIT && layer.name.match(/^right or wrong(.*)/);
    if (!judged) return label;
    const [truth, guess] = ["class", `predicted class${judged[1]}`].map((name) => shown(named(name), node));
    return `${truth === guess ? "right" : "wrong"}, ${label}`;
  }
  return `${written(columns.get(layer.name)(node))}${layer.unit ? ` ${layer.unit}` : ""}`;
}

// Three digits; of a place as many as tell intersections apart, a metre.
const brief = (name, value) => (PLACE.includes(name) ? value.toFixed(5) : header.bonds && WORDS[name] ? inWords(name, value) : written(value));

// What the files do not have stands behind what they have.
const isDrawn = (name) => name.endsWith("(drawn)");

const numberOf = (node) => (header.ids ? header.ids[node] : node);

// Describe a node; where nodes have ids, at first the one of most neighbours.
function describe(node) {
  const isFirst = node < 0 && ranked.length > 0;
  if (isFirst) node = ranked[0];
  const noun = capital(header.node_noun);
  const most = header.numbers ? " (in the middle)" : " (no node has more neighbours)";
  const why = isFirst ? most : node === state.node ? " (held)" : "";
  $("chosen").textContent = node < 0 ? "" : `${noun} ${numberOf(node)}${why}`;
  const isWide = columns.size > MANY;
  $("within").hidden = node < 0 || !isWide;
  $("left-out").textContent = "";
  if (node < 0) return $("details").tBodies[0].replaceChildren(); // what was pointed at before is named no more
  const named = new Set(layers.map((layer) => layer.name));
  const unnamed = [...columns].filter(([name]) => !named.has(name) && !named.has(name.replace(/=.*/, "=…")));
  // Of many columns those that are not 0, or that are searched.
  const text = $("within").value;
  const isZero = ([, column]) => column(node) === 0;
  const wanted = unnamed.filter((each) => (text ? isSearched(each[0], text) : !isWide || !isZero(each)));
  const others = [...wanted.filter((each) => !isZero(each)), ...wanted.filter(isZero)];
  const zeros = unnamed.length - wanted.length;
  const docs = Object.entries(header.docs || {}).filter(([name, doc]) => doc && columns.has(`${name} 0`)).map(([name, doc]) => `${name}: ${doc}.`);
  if (zeros && !text) docs.unshift(`${zeros.toLocaleString("en")} other ${zeros === 1 ? "column is" : "columns are"} 0.`);
  $("left-out").textContent = docs.join(" ");
  const told = (last) => layers.filter(({ name }) => isDrawn(name) === last && isSearched(name, text)).map((layer) => [layer.name, shown(layer, node), last]);
  const exact = (name) => String(columns.get(name)?.(node) ?? "").replace("NaN", "");
  const rows = [
    ...(header.ids && isSearched("number", text) ? [["number", nodeNumbers[node], false]] : []),
    ...told(false),
    ...others.map(([name, column]) => [name, brief(name, column(node)), column(node) === 0]),
    ...told(true),
  ].map(([name, textContent, zero]) =>
    element("tr", { className: zero ? "zero" : "" }, element("td", { textContent: titleOf(name) }), element("td", { textContent, title: exact(name) })),
  );
  $("details").tBodies[0].replaceChildren(...rows);
}

// The node that is pointed at, or -1; those that are filtered out are not.
function nodeAt(px, py, reach = REACH) {
  const [mx, my] = view.toMap(px, py);
  const { width, height } = paneBoxes()[0];
  return Number.isNaN(mx) || px > width || py > height ? -1 : nearestNode(x, y, mx, my, Math.min(reach / view.metre, 1e8), passes, turning && turning.depth);
}

// Some nodes alone have their influence in the page: a click holds the nearest of them.
function pick(px, py, reach) {
  hold(nodeAt(px, py, state.layer.levels ? Infinity : reach));
}

function hover(px, py) {
  const node = nodeAt(px, py);
  if (node === state.hovered) return;
  state.hovered = node;
  if (node >= 0) {
    const said = layers.filter(({ name }) => /^(class|target|(predicted class|prediction)( \(.*\))?)$/.test(name));
    const texts = Array.from(new Set([state.layer, ...said]), (layer) => `${titleOf(layer.name)}: ${shown(layer, node)}`);
    $("tip").textContent = [...(header.ids ? [header.ids[node]] : []), ...texts].join("\n");
  }
  if (state.node < 0) describe(node);
  drawMarks();
}

function colorBy(layer) {
  const panes = layer.levels ? influence.length : 1;
  const other = panes !== state.panes;
  const degree = DEGREES.includes(layer.name) ? columns.get(layer.name) : degreeOf;
  Object.assign(state, { layer, panes, degree, mean: x.reduce((sum, _, node) => sum + degree(node), 0) / x.length });
  startLegend(layer);
  tell();
  const parts = partsOf(header.explore.split);
  const isJudged = (node) => influence[0].place.has(node) && (!parts || parts.codes[node] === 2);
  const middle = () => nearestNode(x, y, 0, 0, 1e8, isJudged);
  if (layer.levels && state.node < 0) hold((state.given = middle() < 0 ? knownNear(0) : middle()));
  else if (layer.levels ? !influence[0].place.has(state.node) : state.node >= 0 && state.node === state.given) {
    hold(layer.levels ? state.node : -1); // what nobody asked for is let go of with its map
  } else updateLooks();
  if (other) view.fit();
}
