// What the reader explores: balls, farthest paths, chosen keys, search, and figures of runs.

const hueOf = (head) => 4 + head;
const DEGREES = ["edges of a node", "bonds of an atom", "outgoing edges", "incoming edges"]; // layers with the number of edges
const LISTED = 60; // keys, the heaviest ones, and neighbours at most
// Font size of symbols of atoms, of other nodes and of cells, of their diameter.
const [LETTER, LETTER_IN_NODE, LETTER_IN_CELL] = [0.4, 0.65, 0.5];
const FAN = 12; // edges of a node whose casings would cut others to dashes
const UNKNOWN = 0.6; // strength of a symbol that stands for no value
const LEAST_LETTER = 11; // CSS pixels
const [OF_FORMULA, LEAST_IN_FORMULA] = [0.28, 8]; // font size in a formula, of a bond, and CSS pixels at least
const INSIDE = 0.62; // of a node's diameter that its symbol takes at most: the rim is from 0.7
const BARE = 0.75; // size of an atom without a symbol
const PLACE = ["longitude [°]", "latitude [°]"]; // columns of a city
let graph, chosen;
let symbols = []; // text of each node, and the size of an atom
let symbolText = ""; // what they mean, but for atoms
const nounWithArticle = () => `${"aeiou".includes(header.node_noun[0]) ? "an" : "a"} ${header.node_noun}`;

function startExplorer() {
  const { explore } = header;
  graph = neighbourhoods(x.length, streets, explore.lengths && array(explore.lengths));
  chosen = explore.keys && readKeys(explore.keys);
  if (chosen) {
    const heads = Array.from({ length: explore.keys.layers[0].heads }, (_, i) => String(i));
    const lists = { layer: explore.keys.layers.map((_, i) => String(i)), head: [...heads, "all"] };
    for (const [id, texts] of Object.entries(lists)) {
      $(id).replaceChildren(...texts.map((textContent) => element("option", { textContent })));
      $(id).addEventListener("change", () => {
        listKeys();
        updateLooks();
      });
    }
  }
  const ways = columns.has("osm_id") ? "OpenStreetMap id or number" : header.ids ? `id or number of the ${header.node_noun}` : `number of the ${header.node_noun}`;
  $("search").firstElementChild.textContent = `Search by ${ways}`;
  if (header.ids) $("query").inputMode = "text";
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search($("query").value);
  });
  $("query").addEventListener("input", () => $("query").setCustomValidity(""));
  // Wherever the focus is: first what is filtered, then the held node.
  addEventListener("keydown", ({ key }) => {
    if (key !== "Escape") return;
    if (state.only.size) clearPressed();
    else if (state.node >= 0) hold(-1);
  });
  showFigures(explore);
  tell();
  window.explorer = { state, graph, chosen, show, search };
}

// Hold a node, or let go of the one that is held already; -1: of any.
function hold(node) {
  const { hops, lengths } = header.explore;
  if (node >= 0 && state.layer.levels) node = knownNear(node);
  node = node === state.node ? -1 : node;
  const ball = node >= 0 && hops ? ballOf(graph, node, hops) : new Map();
  Object.assign(state, { node, ball, path: null, edges: edgesOf(node) });
  if (node >= 0 && hops && lengths) {
    state.path = farthestPath(graph, state.ball, node);
    state.path.points = alongStreets(state.path.path);
  }
  describe(node);
  tell();
  listKeys();
  // What is said may lie below the legend, and on a phone below the map.
  if (node >= 0 && document.body.dataset.state === "ready") $("about").scrollIntoView({ block: "nearest" });
  updateLooks();
}

// The edges that are lit at a node, each with its lines, whether it goes one way, and its number.
function edgesOf(node) {
  const edges = [];
  if (node < 0 || header.explore.hops !== 1 || header.bonds || isField) return edges;
  const isOneWay = header.one_way && array(header.one_way);
  for (let i = 0; i < streets.length; i += 2) {
    const [from, to] = [streets[i], streets[i + 1]];
    if (from === node || to === node) edges.push([routes.get(i / 2) || [[from, to]], isOneWay && isOneWay[i / 2], i / 2]);
  }
  return edges;
}

function tell() {
  const { explore } = header;
  const { node, ball, path } = state;
  const levels = Boolean(state.layer && state.layer.levels);
  const lines = node < 0 ? [`Click ${nounWithArticle()}, or press Enter on the one in the middle.`] : [];
  if (node < 0 && !levels && ranked.length) lines.push(`The ringed ${header.node_noun}, ${numberOf(ranked[0])}, is described below until you point at another.`);
  if (levels) lines.push(`Click near one of ${influence[0].known.length} ${header.node_noun}s to see what influences it.`);
  if (node >= 0) lines.push(...predictionLines(node));
  if (node >= 0 && explore.hops && !levels) {
    const within = `${ball.size.toLocaleString("en")} intersections within ${explore.hops} hops, with rings around those at ${explore.hops}.`;
    lines.push(header.metres ? heldKey("ring", within) : isField ? neighbourText(node) : heldKey("", neighbourText(node), heldColor()));
    if (!header.metres) lines.push(element("span", {}, ...[...ball.keys()].slice(1, LISTED + 1).map(jump)));
  }
  if (path && !levels) {
    const stored = columns.get("eccentricity")(node);
    const same = Math.fround(path.length) === stored;
    const far = `The farthest, ${path.to}, is ${written(Math.fround(path.length))} ${explore.unit} away over ${path.path.length - 1} streets.`;
    const published = `The eccentricity that makes the class is ${written(stored)} ${explore.unit}: it was published so.`;
    lines.push(heldKey("outline", far), same ? "That is the eccentricity, which makes the class." : published);
  } else if (node >= 0 && header.metres && !explore.lengths && !levels) {
    lines.push("The path that makes the class is not drawn: a build keeps no travel times.");
  }
  if (node >= 0 && header.metres) lines.push(mapLink(node));
  $("story").replaceChildren(...lines.map((line) => element("span", {}, line)));
}

// What each run says of a node, and whether it is right.
function predictionLines(node) {
  const { runs = [] } = header.explore;
  const [truth, target] = [named("class"), named("target")];
  const label = (code) => truth.labels[code].replace(/^class /, "").replace(/^(\d+): (.*)/, "$1 ($2)"); // where a class has no other name
  const parts = partsOf(header.explore.split);
  const part = parts && parts.labels[parts.codes[node]];
  const said = runs.map(({ run, suffix }) => {
    const who = runs.length > 1 ? `${shortName(run, runs)} predicts` : "predicted";
    const [guess, value] = [named(`predicted class${suffix}`), named(`prediction${suffix}`)];
    if (truth && guess) {
      const [a, b] = [truth, guess].map(({ codes }) => codes[node]);
      const off = header.metres ? `, wrong by ${Math.abs(a - b)}` : ", wrong";
      const known = truth.labels[a] !== "no class";
      return `${who} ${label(b).replace(/^(\d+) .*/, "$1")}${!known ? "" : a === b ? ", right" : off}`;
    }
    if (target && value) return `${who} ${shown(value, node)}: off by ${written(columns.get(`absolute error${suffix}`)(node))}`;
    return "";
  });
  const where = part ? `, in ${part === "train" ? "training" : part.replace(/^in /, "")}` : "";
  const given = truth ? `True ${titleOf("class")} ${label(truth.codes[node])}` : target ? `True ${titleOf("target")} ${shown(target, node)}` : "";
  return given ? [`${[given + where, ...said.filter(Boolean)].join("; ")}.`] : [];
}

// Neighbours are counted once each, whichever way and however often an edge joins them; edges are all of them,
// by direction if they have one.
function neighbourText(node) {
  const count = state.ball.size - 1;
  const edges = DEGREES.filter((name) => columns.has(name)).slice(-2).map((name) => {
    const degree = columns.get(name)(node);
    return `${degree.toLocaleString("en")} ${name.replace(degree === 1 ? /s( of .*)?$/ : / of .*$/, "")}`;
  });
  const onEdges = measured && state.edges.length && state.edges.length <= 15 ? ` Numbers on edges: ${measured.name}.` : "";
  return `${count.toLocaleString("en")} ${count === 1 ? "neighbour" : "neighbours"}${header.numbers ? " shown; " : " by "}${edges.join(" and ")}.${onEdges}`;
}

function mapLink(node) {
  const stored = columns.get("osm_id");
  const osm = stored && stored(node) > 0 ? stored : null; // not of every source
  const [longitude, latitude] = PLACE.map((name) => columns.get(name)(node).toFixed(6));
  const place = osm ? `node/${osm(node)}` : `?mlat=${latitude}&mlon=${longitude}#map=18/${latitude}/${longitude}`;
  const textContent = osm ? `OpenStreetMap node ${osm(node)}` : "On OpenStreetMap";
  return element("a", { href: `https://www.openstreetmap.org/${place}`, textContent, target: "_blank", rel: "noopener noreferrer" });
}

// A button that holds another node.
function jump(node) {
  const button = element("button", { type: "button", textContent: numberOf(node) });
  button.addEventListener("click", () => show(node));
  return button;
}

// List the chosen keys of the held node in the layer and heads that are asked for, the heaviest first.
function listKeys() {
  state.links = [];
  $("keys").hidden = !chosen || state.node < 0;
  if ($("keys").hidden) return;
  const { nodes, all } = chosen;
  const { runs, keys } = header.explore;
  $("keys").firstElementChild.textContent = `Keys that k-MIP heads chose${runs.length > 1 ? `, ${shortName(keys.run, runs)}` : ""}`;
  const away = (node) => Math.hypot(x[node] - x[state.node], y[node] - y[state.node]);
  if (chosen.place.has(state.node)) {
    const head = $("head").value;
    state.links = chosen.of(state.node, Number($("layer").value)).filter((link) => head === "all" || link.head === Number(head));
    state.links.sort((a, b) => b.weight - a.weight);
    $("kept").textContent = all ? "" : `Keys of ${nodes.length.toLocaleString("en")} ${header.node_noun}s, drawn at random, are in the page.`;
  } else {
    $("kept").textContent = `This ${header.node_noun} is none of those whose keys are in the page.`;
  }
  const heading = ["key", "head", "weight", ...(header.metres ? ["away"] : [])];
  $("chosen-keys").tHead.replaceChildren(element("tr", {}, ...heading.map((textContent) => element("th", { textContent }))));
  const rows = state.links.slice(0, LISTED).map(({ key, head, weight }) => {
    const texts = [head, written(weight), ...(header.metres ? [`${written(away(key))} m`] : [])];
    const cells = texts.map((textContent) => element("td", { textContent }));
    cells[0].style.borderLeft = `5px solid ${hue(hueOf(head))}`;
    return element("tr", {}, element("td", {}, jump(key)), ...cells);
  });
  $("chosen-keys").tBodies[0].replaceChildren(...rows);
}

// Hold a node; bring it into the middle where it is out of sight.
function show(node) {
  const sides = [canvas.clientWidth, canvas.clientHeight];
  if (view.toScreen(x[node], y[node]).some((at, i) => !(at > 0 && at < sides[i]))) {
    Object.assign(view, { center: [x[node], y[node]], moved: true });
  }
  if (state.node === node) redraw();
  else hold(node);
}

function search(text) {
  const wanted = text.trim() ? Number(text) : NaN;
  const osm = columns.get("osm_id");
  const ids = header.ids || [];
  const isSame = (id) => id.toLowerCase() === text.trim().toLowerCase();
  let node = osm ? x.findIndex((_, i) => osm(i) === wanted) : ids.indexOf(text.trim());
  if (node < 0) node = ids.findIndex(isSame);
  if (node < 0) node = nodeNumbers.indexOf(wanted);
  if (node >= 0) show(node);
  $("query").setCustomValidity(node < 0 ? `There is no such ${header.node_noun}.` : "");
  $("query").reportValidity();
}

const describedNode = () => [state.node, state.hovered, ranked[0]].find((node) => node >= 0) ?? NONE;

// Draw over each pane what is held, and mark what is pointed at.
function drawMarks() {
  const pen = $("overlay").getContext("2d");
  const ratio = window.devicePixelRatio || 1;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  for (const { left, top, width, height } of paneBoxes()) {
    pen.save();
    pen.beginPath();
    pen.rect(left, top, width, height);
    pen.clip();
    pen.translate(left, top);
    if (turning && header.metre) drawBox(pen);
    if (header.metres) drawFrame(pen);
    if (state.layer.levels) drawHeldName(pen);
    else drawHeld(pen);
    const marked = describedNode();
    if (marked >= 0) cased(pen, marked, markRadius(marked), ["#fff", 5], ["#000", 2]);
    drawSymbols(pen);
    drawWrong(pen);
    drawClassNames(pen);
    drawLabels(pen);
    pen.restore();
  }
  const tip = $("tip");
  tip.hidden = state.hovered < 0;
  if (tip.hidden) return;
  const [left, top] = placeOf(state.hovered).map((at, i) => at + view.corner[i]);
  tip.style.left = `${Math.min(left + 14, canvas.clientWidth - tip.offsetWidth - 4)}px`;
  tip.style.top = `${Math.min(top + 14, canvas.clientHeight - tip.offsetHeight - 4)}px`;
}

// The points of a path of nodes, with the bends of its streets.
function alongStreets(path) {
  const lines = new Map();
  for (const [line] of routes.values()) {
    lines.set([line[0], line.at(-1)].join(), line);
    lines.set([line.at(-1), line[0]].join(), [...line].reverse());
  }
  return path.flatMap((node, i) => lines.get([path[i - 1], node].join())?.slice(1) ?? [node]);
}

const placeOf = (point) => view.toScreen(pointX(point), pointY(point));

// The mark around the node that is pointed at, or is held and therefore larger, leaves the node free.
const markRadius = (node) => isField ? state.diameter / 2 : Math.max(9, (node === state.node ? 0.53 : 0.35) * sizeOf(node) * state.diameter + 3);
const ringRadius = (node) => (node === state.node ? markRadius(node) : 0.35 * sizeOf(node) * state.diameter + 2);

function distanceOf(point, other) {
  const [[ax, ay], [bx, by]] = [placeOf(point), placeOf(other)];
  return Math.hypot(bx - ax, by - ay);
}

// Where the ring around a node crosses the line to another.
function rimOf(node, other) {
  const [[ax, ay], [bx, by]] = [placeOf(node), placeOf(other)];
  const share = Math.min(ringRadius(node) / distanceOf(node, other), 0.5);
  return [ax + share * (bx - ax), ay + share * (by - ay)];
}

// The outline of a node, which is round, or a cell.
function disc(pen, node, radius) {
  const [across, down] = placeOf(node);
  pen.beginPath();
  if (isField) pen.rect(across - radius, down - radius, 2 * radius, 2 * radius);
  else pen.arc(across, down, radius, 0, 2 * Math.PI);
  return pen;
}

// The name of the held node.
function drawHeldName(pen) {
  if (state.node < 0) return;
  const [across, down] = placeOf(state.node);
  Object.assign(pen, { font: `600 13px ${ink("font")}, sans-serif`, textBaseline: "middle" });
  Object.assign(pen, { strokeStyle: ink("ground"), fillStyle: ink("ink"), lineJoin: "round", lineWidth: 4 });
  const text = `${header.node_noun} ${numberOf(state.node)}`;
  const aside = markRadius(state.node) + GAP + 3;
  const isRoom = across + aside + pen.measureText(text).width < paneBoxes()[0].width;
  pen.textAlign = isRoom ? "left" : "right";
  const place = [across + (isRoom ? aside : -aside), down];
  pen.strokeText(text, ...place);
  pen.fillText(text, ...place);
  const half = pen.measureText(text).width / 2;
  state.label = { across: place[0] + (isRoom ? half : -half), down, half };
}

// The frame of a map.
function drawFrame(pen) {
  const [[west, east], [south, north]] = state.box;
  const [[left, top], [right, bottom]] = [view.toScreen(west, north), view.toScreen(east, south)];
  Object.assign(pen, { strokeStyle: ink("line"), lineWidth: 1 }).strokeRect(left, top, right - left, bottom - top);
}

// The box around a cloud, without the three edges behind it, and the lengths of its sides.
function drawBox(pen) {
  const { sides, project } = turning;
  const corner = (number) => sides.map((ends, axis) => ends[(number >> axis) & 1]);
  const place = (at) => view.toScreen(...project(...at));
  const corners = Array.from({ length: 8 }, (_, number) => corner(number));
  const depths = corners.map((at) => project(...at)[2]);
  const farthest = depths.indexOf(Math.max(...depths));
  Object.assign(pen, { strokeStyle: ink("pale"), fillStyle: ink("ink"), lineWidth: 1, globalAlpha: 1 });
  Object.assign(pen, { font: `12px ${ink("font")}, sans-serif`, textBaseline: "middle" });
  sides.forEach(([low, high], axis) => {
    const isEdge = (number) => !((number >> axis) & 1) && ![number, number | (1 << axis)].includes(farthest);
    const edges = [...corners.keys()].filter(isEdge).map((number) => [number, number | (1 << axis)].map(corner));
    pen.beginPath();
    for (const [from, to] of edges) {
      pen.moveTo(...place(from));
      pen.lineTo(...place(to));
    }
    // The lowest edge, and of upright ones the leftmost, has the length.
    const isOutside = ([from, to]) => {
      const [[ax, ay], [bx, by]] = [place(from), place(to)];
      return 2 * (ay + by) - (ax + bx);
    };
    const [start, end] = edges.reduce((best, edge) => (isOutside(edge) > isOutside(best) ? edge : best));
    const [[ax, ay], [bx, by]] = [place(start), place(end)];
    const [middle_x, middle_y] = place(sides.map((ends) => (ends[0] + ends[1]) / 2));
    const normal = [by - ay, ax - bx].map((side) => side / Math.max(Math.hypot(bx - ax, by - ay), 1));
    const outward = Math.sign(normal[0] * (ax + bx - 2 * middle_x) + normal[1] * (ay + by - 2 * middle_y)) || 1;
    const [right, down] = normal.map((side) => side * outward);
    const metres = (high - low) / header.metre;
    pen.stroke();
    pen.textAlign = right < -0.3 ? "right" : right > 0.3 ? "left" : "center";
    pen.fillText(`${written(Number(metres.toFixed(2)))} m`, (ax + bx) / 2 + 12 * right, (ay + by) / 2 + 12 * down);
  });
}

// A ring in a casing.
function cased(pen, node, radius, ...strokes) {
  for (const [strokeStyle, lineWidth] of strokes) {
    Object.assign(disc(pen, node, radius), { strokeStyle, lineWidth, globalAlpha: 1 }).stroke();
  }
}

// The colour that the disc of a node has.
function colorOf(node) {
  const { codes, colors, limits } = state.layer;
  if (codes) return onGround(colors)[codes[node]];
  if (state.at[node] < 0) return ink("missing");
  const ramp = onGround(limits && limits.center !== undefined ? header.diverging : header.ramp);
  return ramp[Math.round(state.at[node] * (ramp.length - 1))];
}

// Symbols of atoms with their hydrogens, and how large their discs are so that the longest fits; carbon has none, as
// in structural formulas.
function readSymbols() {
  const layer = layers.find(({ name }) => name === "element");
  if (!layer) return readValues().map((text) => ({ text }));
  const hydrogens = columns.get("hydrogens");
  const hasBond = new Set(streets);
  const pen = $("overlay").getContext("2d");
  pen.font = "600 100px sans-serif";
  const atoms = Array.from(layer.codes, (code, node) => {
    const symbol = layer.labels[code];
    if (symbol === "C" || symbol.length > 4) return { text: "" };
    const attached = hydrogens ? hydrogens(node) : 0;
    const group = attached ? `H${attached > 1 ? "₀₁₂₃₄₅₆₇₈₉"[attached] : ""}` : "";
    const [, letters, charge] = symbol.match(/^([A-Z][a-z]?|\*)(.*)$/);
    // As chemists write single molecules: HCl and H₂O, but NH₃.
    const isAcid = !hasBond.has(node) && /^(F|Cl|Br|I|O|S)$/.test(symbol);
    return { text: isAcid ? group + symbol : letters + group + charge, letters, group, charge };
  });
  const widest = Math.max(...atoms.map(({ text }) => pen.measureText(text).width / 100));
  const size = Math.max(1, (LETTER * Math.hypot(widest, 0.73)) / INSIDE); // capitals are 0.73 of a font's size high
  return atoms.map((atom) => ({ ...atom, size: atom.text ? size : BARE }));
}

// Where the hydrogens of an atom stand next to its letter, as [right, up]: away from its bonds.
function sideOfHydrogens(node) {
  const others = [...graph.other.subarray(graph.first[node], graph.first[node + 1])];
  const [right, up] = [x, y].map((at) => others.reduce((sum, other) => sum + at[other] - at[node], 0) / usual);
  if (others.length > 1 && Math.abs(up) > Math.abs(right)) return [0, -Math.sign(up)];
  return [right > 0.3 ? -1 : 1, 0];
}

// Letters of a formula in the colour of their element; bonds end around them.
function drawFormula(pen) {
  const size = Math.max(OF_FORMULA * usual * view.metre, LEAST_IN_FORMULA);
  Object.assign(pen, { font: `500 ${size}px ${ink("font")}, sans-serif`, textAlign: "center", textBaseline: "middle" });
  symbols.forEach(({ text, letters, group, charge }, node) => {
    if (!text) return;
    const [across, down] = placeOf(node);
    const hasBond = degreeOf(node) > 0;
    const [right, up] = hasBond ? sideOfHydrogens(node) : [0, 0];
    const middle = hasBond ? letters : text;
    const next = hasBond ? (right > 0 ? group : "") + charge : "";
    const half = (part) => pen.measureText(part).width / 2;
    const parts = [
      [middle, across, down],
      [next, across + half(middle) + half(next), down],
      [hasBond && right <= 0 ? group : "", across + right * (half(middle) + half(group)), down - 0.95 * up * size],
    ].filter(([part]) => part);
    pen.fillStyle = ink("ground");
    for (const [part, left, top] of parts) pen.fillRect(left - half(part) - 0.12 * size, top - 0.5 * size, 2 * half(part) + 0.24 * size, size);
    const isPale = !passes(node) || (state.node >= 0 && !state.ball.has(node));
    pen.fillStyle = isPale ? ink("line") : colorOf(node);
    for (const part of parts) pen.fillText(...part);
  });
}

// What else nodes show in a letter, and what the letters mean.
function readValues() {
  const { meaning = "", labels, codes } = header.symbols || {};
  symbolText = meaning;
  return codes ? Array.from(array(codes), (code) => labels[code]) : [];
}

// Symbols inside the discs of nodes, whatever they are coloured by.
function drawSymbols(pen) {
  if (isFormula()) return drawFormula(pen);
  const { diameter, node: held, ball } = state;
  const size = (header.bonds ? LETTER : isField ? LETTER_IN_CELL : LETTER_IN_NODE) * diameter;
  if (size < LEAST_LETTER) return;
  Object.assign(pen, { font: `600 ${size}px sans-serif`, textAlign: "center", textBaseline: "middle" });
  const isSign = symbols.some(({ text }) => text === "▲");
  const letters = isSign && lettersOnAll(symbols.map((_, node) => colorOf(node)));
  symbols.forEach(({ text }, node) => {
    if (!text || !passes(node)) return;
    const [across, down] = placeOf(node);
    if (!header.bonds) pen.font = `600 ${text.length > 1 ? 0.7 * size : size}px sans-serif`;
    pen.fillStyle = held >= 0 && !ball.has(node) ? ink("pale") : letters || lettersOn(colorOf(node));
    pen.globalAlpha = text === "?" ? UNKNOWN : 1;
    pen.fillText(text, across, down + 0.05 * size);
    pen.globalAlpha = 1;
  });
}

// Over a picture, letters may be as light or dark as it is.
const heldColor = () => (header.picture ? "#ffa033" : ink("ink"));

// The path that makes the label, rings around the ends of the ball, and arcs to the keys. Lines are outlines
// where they lie on streets, so that the colours of streets stay as they are.
function drawHeld(pen) {
  const { node, ball, path, links, edges } = state;
  state.numbers = [];
  const stroke = (style, places) => {
    pen.beginPath();
    places.forEach((place, i) => pen[i ? "lineTo" : "moveTo"](...place));
    Object.assign(pen, style).stroke();
  };
  const color = heldColor();
  const ring = (each) => Object.assign(disc(pen, each, ringRadius(each)), { strokeStyle: color, lineWidth: 1.5 }).stroke();

  if (path) {
    stroke({ strokeStyle: color, lineJoin: "round", lineWidth: 9 }, path.points.map(placeOf));
    pen.globalCompositeOperation = "destination-out"; // its middle
    stroke({ lineWidth: 5 }, path.points.map(placeOf));
    pen.globalCompositeOperation = "source-over";
    ring(path.to);
  }

  // Lines have a casing of the ground, so that they are seen over others and over a picture; many are thin.
  const wide = Math.min(Math.max(30 / edges.length, 1), 2);
  const widthOf = (edge) => wide * (measured ? 0.75 + measured.widths[edge] / 11 : 1); // as in the shader of edges
  const casing = header.picture ? ["#000", 1.5] : [ink("ground"), edges.length > FAN ? 0 : 3];
  for (const [ground, more] of [casing, ["", 0]]) {
    for (const [lines, isOneWay, edge] of edges) {
      const strokeStyle = ground || color;
      const lineWidth = widthOf(edge) + more;
      for (const line of lines) {
        const [first, last] = [line[0], line.at(-1)];
        const isClear = (point) => [first, last].every((end) => distanceOf(point, end) > 2 * ringRadius(end));
        const between = line.slice(1, -1).filter(isClear);
        const [second, before] = [between[0] ?? last, between.at(-1) ?? first];
        const end = last < x.length ? rimOf(last, before) : placeOf(last);
        stroke({ strokeStyle, fillStyle: strokeStyle, lineWidth }, [rimOf(first, second), ...between.map(placeOf), end]);
        if (header.one_way && last < x.length) arrow(pen, before, last, 5 + 4.5 * Math.min(wide, 1.4));
        if (header.one_way && !isOneWay) arrow(pen, second, first, 5 + 4.5 * Math.min(wide, 1.4));
      }
    }
  }
  // Few of them have the number that makes them wide.
  if (measured && wide === 2) {
    Object.assign(pen, { font: `11px ${ink("font")}, sans-serif`, textAlign: "center", textBaseline: "middle", strokeStyle: ink("ground"), lineWidth: 4 });
    for (const [lines, , edge] of state.edges) {
      const [from, to] = [lines[0].at(Math.ceil(lines[0].length / 2) - 1), lines[0].at(Math.ceil(lines[0].length / 2))].map(placeOf);
      const place = from.map((at, i) => (at + to[i]) / 2);
      pen.strokeText(written(measured.of(edge)), ...place);
      pen.fillText(written(measured.of(edge)), ...place);
      state.numbers.push(place);
    }
  }
  if (header.metres || (wide === 2 && !header.bonds && !isField)) {
    for (const [each, hop] of ball) if (hop === header.explore.hops) ring(each);
  }

  const most = Math.max(...links.map(({ weight }) => weight));
  for (const { key, head, weight } of [...links].reverse()) {
    const share = weight / most;
    Object.assign(pen, { strokeStyle: hueNow(hueOf(head)), fillStyle: hueNow(hueOf(head)), lineWidth: 0.5 + 5 * share, globalAlpha: 0.25 + 0.65 * share });
    arc(pen, node, key, head);
    disc(pen, key, 2 + 4 * Math.sqrt(share)).fill();
  }
  pen.globalAlpha = 1;
}

// The head of an arrow that ends at the rim of its target, so long if there is room.
function arrow(pen, from, to, long) {
  const [[ax, ay], [bx, by]] = [placeOf(from), rimOf(to, from)];
  if (from < x.length) long = Math.min(long, Math.max((distanceOf(from, to) - ringRadius(from) - ringRadius(to)) / 2, 3));
  const angle = Math.atan2(by - ay, bx - ax);
  pen.beginPath();
  for (const [turn, far] of [[0, 0], [0.4, long], [-0.4, long]]) {
    pen.lineTo(bx - far * Math.cos(angle + turn), by - far * Math.sin(angle + turn));
  }
  pen.closePath();
  pen.lineJoin = "round";
  pen.fill();
  pen.stroke(); // its casing covers the head below
}

// Stroke an arc. Each head bends its arcs by another share of their length, so that those to one key lie apart;
// a node that attends to itself has a loop on a side of each head's own.
function arc(pen, from, to, head) {
  const { heads } = header.explore.keys.layers[Number($("layer").value)];
  const [[ax, ay], [bx, by]] = [placeOf(from), placeOf(to)];
  pen.beginPath();
  if (from === to) {
    const [angle, radius] = [(2 * Math.PI * head) / heads, 14];
    pen.arc(ax + radius * Math.cos(angle), ay + radius * Math.sin(angle), radius, 0, 2 * Math.PI);
  } else {
    const bend = (head + 1) / (heads + 1) - 0.4;
    pen.moveTo(ax, ay);
    pen.quadraticCurveTo((ax + bx) / 2 + bend * (by - ay), (ay + by) / 2 - bend * (bx - ax), bx, by);
  }
  pen.stroke();
}

// The chosen keys: (S, H, k) of each layer, for the S nodes that are in the page.
function readKeys(keys) {
  const nodes = array(keys.nodes);
  const place = new Map(Array.from(nodes, (node, at) => [node, at]));
  const of = (node, layer) => {
    const { heads, k, indices, weights } = keys.layers[layer];
    const [first, size] = [place.get(node) * heads * k, heads * k];
    const shares = array(weights).subarray(first, first + size);
    const found = Array.from(array(indices).subarray(first, first + size), (key, i) => ({
      key, head: Math.floor(i / k), weight: shares[i] / 65535,
    }));
    return found.filter(({ key }) => key < x.length); // the number of nodes stands for no key
  };
  return { nodes, place, of, all: keys.all };
}

function showFigures({ runs = [], label, is_class, split, curves }) {
  const line = (text) => spaced(text).replaceAll("\n", ", ").replace(/(^|[ (])-(?=[\d.])/g, "$1−");
  const said = [];
  for (const { run, words, suffix } of runs) {
    const verdict = label === words ? ", right" : is_class ? ", wrong" : "";
    if (words) said.push(`\nPredicted${suffix} ${line(words)}${verdict}`);
  }
  $("label").hidden = !label;
  if (label) {
    const name = element("span", { textContent: `${header.target || (is_class ? "Class" : "Label")} ` });
    $("label").replaceChildren(name, element("b", { textContent: line(label) }), ...said);
  }
  $("words").hidden = !runs.length;
  $("words").textContent = runs.map(({ run }) => `Run ${run}`).join("\n");
  const score = scoresOf(curves || [], partsOf(split));
  $("score").hidden = !score;
  if (score) $("score").replaceChildren(element("b", { textContent: score[0] }), ` ${score[1]}`);
  // Of two runs each has its name above its figure.
  const name = (run) => (runs.length > 1 ? [element("h2", { textContent: shortName(run, runs) })] : []);
  const measured = runs.map(({ run, suffix }) => ({ run, matrix: confusionOf(split, suffix) })).filter(({ matrix }) => matrix);
  $("confusion").hidden = !measured.length;
  if (measured.length) {
    const of = partsOf(split) ? "Nodes of the test part." : "All nodes.";
    $("confusion").querySelector("p").textContent = `${of} Rows are true classes, columns predicted ones.`;
    $("confusion").querySelector("div").replaceChildren(...measured.flatMap(({ run, matrix }) => [...name(run), confusionTable(named("class").labels, matrix)]));
  }
  showAnswers(curves || [], $("answers"));
  const byHops = runs.map(({ run, suffix }) => [run, errorByHops(split, suffix)]).filter(([, errors]) => errors);
  const found = (curves || []).slice(0, 2).map((curve) => [curve.name, errorByDistance(curve)]);
  const errors = byHops.length ? byHops : found.filter(([, each]) => each);
  $("errors").hidden = !errors.length;
  if (errors.length) {
    const most = Math.max(...errors.flatMap(([, { rows }]) => rows.map(([, mean, , spread = 0]) => mean + spread))); // one scale for both
    const title = (run) => (errors.length > 1 ? [element("h2", { textContent: shortName(run, errors.map(([name]) => ({ run: name }))) })] : []);
    $("errors").querySelector("p").textContent = errors[0][1].note;
    $("errors").querySelector("div").replaceChildren(...errors.flatMap(([run, each]) => [...title(run), errorChart(each, most)]));
  }
  $("curves").hidden = !showCurves(curves || [], $("column"), $("curves").querySelector("div"));
}

startPage().catch((error) => {
  $("message").textContent = error.message;
  document.body.dataset.state = "failed";
  console.error(error);
});
