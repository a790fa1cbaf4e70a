// The page around the graph: what it is coloured by, its legend, and the columns of a node.

const REACH = 24; // CSS pixels from which a node is pointed at
const canvas = $("canvas");

// What is loaded once, shared by all scripts of the page.
let header, array, x, y, z, streets, columns, layers, view, drawing, usual;
// What the reader has chosen.
const state = { layer: null, hidden: new Set(), hovered: -1, node: -1, ball: new Map(), path: null, links: [], due: false };

async function startPage() {
  header = JSON.parse($("header").textContent);
  array = await readArrays($("data").textContent);
  $("data").remove();
  [x, y, streets] = [header.x, header.y, header.streets].map(array);
  z = header.z && array(header.z);
  columns = new Map(header.columns.map((column) => [column.name, readColumn(column, array)]));
  layers = header.layers.map((layer) => (layer.codes ? { ...layer, codes: array(layer.codes) } : layer));
  // Any other column can be coloured by, too.
  const others = [...columns.keys()].filter((name) => layers.every((layer) => layer.name !== name));
  const ways = [...layers, ...others.map((name) => ({ name }))];
  // The lines of a crowded graph would hide it.
  drawing = makeDrawing(canvas, { x, y, streets: header.explore.crowded ? new Uint32Array(0) : streets });
  // What can be turned stays inside a circle about its middle.
  const reach = z && x.reduce((most, _, i) => Math.max(most, Math.hypot(x[i], y[i], z[i])), 0);
  const [[west, east], [south, north]] = z ? [[-reach, reach], [-reach, reach]] : [x, y].map(extent);
  view = makeView(canvas, [west, south, east, north], redraw);
  usual = Math.sqrt(((east - west) * (north - south)) / x.length);

  $("facts").textContent = header.facts;
  $("by").replaceChildren(...ways.map((way, value) => element("option", { value, textContent: way.name })));
  $("by").addEventListener("change", () => colorBy(ways[$("by").value]));
  $("in").addEventListener("click", () => view.zoom(1.5));
  $("out").addEventListener("click", () => view.zoom(1 / 1.5));
  $("fit").addEventListener("click", () => view.fit());
  listen(canvas, view, { hover, leave: () => hover(NaN, NaN), pick: (...place) => hold(nodeAt(...place)) });
  // A window that changes its size still shows the whole graph, until someone moves it.
  new ResizeObserver(() => (view.moved ? redraw() : view.fit())).observe(canvas);
  DARK.addEventListener("change", () => colorBy(state.layer));
  $("scale").hidden = !header.metres;
  startExplorer();
  describe(-1);
  view.fit();
  colorBy(ways[0]);
  drawNow();
  $("message").hidden = true;
  window.cityMap = { view, x, y, columns, drawNow, find: nodeAt };
  document.body.dataset.state = "ready";
}

function redraw() {
  if (state.due) return;
  state.due = true;
  requestAnimationFrame(drawNow);
}

function drawNow() {
  state.due = false;
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((side) => Math.max(1, Math.round(side * ratio)));
  for (const each of [canvas, $("overlay")]) if (each.width !== width || each.height !== height) Object.assign(each, { width, height });
  // As large as nodes lie apart, but never so small or large that they cannot be seen or told apart.
  const diameter = Math.min(Math.max(0.35 * usual * view.metre, 2, 1.2 * Math.sqrt(view.zoomed())), 16);
  drawing.draw(view.center, view.metre * ratio, diameter * ratio);
  if (header.metres) drawScale();
  drawMarks();
}

function drawScale() {
  const longest = 140 / view.metre;
  const power = 10 ** Math.floor(Math.log10(longest));
  const length = [5, 2, 1].map((step) => step * power).find((step) => step <= longest);
  $("scale").style.width = `${length * view.metre}px`;
  $("scale").firstElementChild.textContent = length >= 1000 ? `${length / 1000} km` : `${written(length)} m`;
}

// What a layer says of a node.
function shown(layer, node) {
  if (layer.codes) return layer.labels[layer.codes[node]];
  return `${written(columns.get(layer.name)(node))}${layer.unit ? ` ${layer.unit}` : ""}`;
}

function describe(node) {
  const thing = header.thing[0].toUpperCase() + header.thing.slice(1);
  $("chosen").textContent = node < 0 ? `Point at ${aThing()}` : `${thing} ${node}${node === state.node ? " (held)" : ""}`;
  if (node < 0) return;
  const named = new Set(layers.map((layer) => layer.name));
  const others = [...columns].filter(([name]) => !named.has(name));
  const rows = [
    ...layers.map((layer) => [layer.name, shown(layer, node), false]),
    ...others.map(([name, column]) => [name, written(column(node)), column(node) === 0]),
  ].map(([name, text, zero]) =>
    element("tr", { className: zero ? "zero" : "" }, element("td", { textContent: name }), element("td", { textContent: text })),
  );
  $("details").tBodies[0].replaceChildren(...rows);
}

// The node that is pointed at, or -1; those of hidden categories are not.
function nodeAt(px, py, reach = REACH) {
  const [mx, my] = view.toMap(px, py);
  const visible = (node) => !state.layer.codes || !state.hidden.has(state.layer.codes[node]);
  return Number.isNaN(mx) ? -1 : nearestNode(x, y, mx, my, Math.min(reach / view.metre, 1e8), visible);
}

function hover(px, py) {
  const node = nodeAt(px, py);
  if (node === state.hovered) return;
  state.hovered = node;
  if (node >= 0) {
    const facts = new Set([state.layer, ...layers.slice(0, 2)]);
    $("tip").textContent = Array.from(facts, (layer) => `${layer.name}: ${shown(layer, node)}`).join("\n");
  }
  if (state.node < 0) describe(node);
  drawMarks();
}

function colorBy(layer) {
  state.layer = layer;
  state.hidden.clear();
  $("note").textContent = layer.note || "";
  (layer.codes ? paintCategories : paintScale)(layer);
  redraw();
}

// RGBA bytes of hex colours; those of hidden categories are clear.
const bytesOf = (colors) =>
  Uint8Array.from(colors.flatMap((color, i) => rgba(color).map((byte, at) => (at === 3 && state.hidden.has(i) ? 0 : byte))));

function paintCategories(layer) {
  const values = Float32Array.from(layer.codes, (code) => (code + 0.5) / layer.labels.length);
  const paint = () => drawing.paint({ values, palette: bytesOf(onGround(layer.colors)), smooth: false });
  const rows = layer.labels.map((label, i) => {
    const count = element("span", { className: "count", textContent: layer.counts[i].toLocaleString("en") });
    const button = element("button", { type: "button" }, swatch(onGround(layer.colors)[i]), element("span", { textContent: label }), count);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      if (!state.hidden.delete(i)) state.hidden.add(i);
      button.setAttribute("aria-pressed", String(!state.hidden.has(i)));
      paint();
      redraw();
    });
    return button;
  });
  const named = layer.labels.some((label, i) => label !== layer.colors[0][i]); // the colours of a picture need no legend
  $("legend").replaceChildren(...rows.filter((_, i) => named && (header.metres || layer.counts[i])));
  paint();
}

function paintScale(layer) {
  const numbers = Float64Array.from(x.keys(), columns.get(layer.name));
  const finite = numbers.filter(Number.isFinite).sort();
  // One per cent at either end is cut off: a single long street would leave one colour for all others.
  const at = (share) => finite[Math.round(share * (finite.length - 1))];
  let [low, high] = [at(0.01), at(0.99)];
  if (!(low < high)) [low, high] = [at(0), at(1)];
  const place = (value) => Math.min(Math.max((value - low) / (high - low || 1), 0), 1);
  const values = Float32Array.from(numbers, (value) => (Number.isFinite(value) ? place(value) : NONE));
  drawing.paint({ values, palette: bytesOf(onGround(header.ramp)), smooth: true });
  const bar = element("div", { className: "ramp" });
  bar.style.background = `linear-gradient(to right, ${onGround(header.ramp).join(", ")})`;
  const unit = layer.unit ? ` ${layer.unit}` : "";
  const ends = [`${low > at(0) ? "≤ " : ""}${written(low)}${unit}`, `${high < at(1) ? "≥ " : ""}${written(high)}${unit}`];
  const texts = (finite.length ? ends : ["no values"]).map((textContent) => element("span", { textContent }));
  $("legend").replaceChildren(bar, element("div", { className: "ends" }, ...texts));
}
