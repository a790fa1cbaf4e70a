// The page around the map: what it is coloured by, its legend, and the columns of an intersection.

const REACH = 24; // CSS pixels from which an intersection is pointed at

// RGBA bytes of hex colours; those of hidden categories are clear.
function bytesOf(colors, visible) {
  const bytes = new Uint8Array(4 * colors.length);
  colors.forEach((color, i) => {
    const [red, green, blue, alpha] = rgba(color);
    bytes.set([red, green, blue, visible(i) ? alpha : 0], 4 * i);
  });
  return bytes;
}

async function startMap() {
  const header = JSON.parse($("header").textContent);
  const array = await readArrays($("data").textContent);
  $("data").remove();
  const [x, y, streets] = [header.x, header.y, header.streets].map(array);
  const columns = new Map(header.columns.map((column) => [column.name, readColumn(column, array)]));
  const layers = header.layers.map((layer) => (layer.codes ? { ...layer, codes: array(layer.codes) } : layer));
  // Any other column can be coloured by, too.
  const ways = [...layers, ...[...columns.keys()].filter((name) => layers.every((layer) => layer.name !== name)).map((name) => ({ name }))];
  const canvas = $("canvas");
  // The lines of a crowded graph would hide it.
  const drawing = makeDrawing(canvas, { x, y, streets: header.explore.crowded ? new Uint32Array(0) : streets });
  const thing = header.thing[0].toUpperCase() + header.thing.slice(1);
  const article = "aeiou".includes(header.thing[0]) ? "an" : "a";
  let explorer = null; // what else follows the map
  const state = { layer: ways[0], hidden: new Set(), hovered: -1, pinned: -1, due: false };

  const visible = (node) => !state.layer.codes || !state.hidden.has(state.layer.codes[node]);
  // What can be turned stays inside a circle about its middle.
  const z = header.z && array(header.z);
  const reach = z && x.reduce((most, _, i) => Math.max(most, Math.hypot(x[i], y[i], z[i])), 0);
  const bounds = z ? [-reach, -reach, reach, reach] : boundsOf(x, y);
  const view = makeView(canvas, bounds, redraw);
  const usual = Math.sqrt(((bounds[2] - bounds[0]) * (bounds[3] - bounds[1])) / x.length);

  function redraw() {
    if (state.due) return;
    state.due = true;
    requestAnimationFrame(drawNow);
  }

  function drawNow() {
    state.due = false;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((side) => Math.max(1, Math.round(side * ratio)));
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    // As large as intersections lie apart, but never so small or large that they cannot be seen or told apart.
    const diameter = Math.min(Math.max(0.35 * usual * view.metre, 2, 1.2 * Math.sqrt(view.zoomed())), 16);
    drawing.draw(view.center, view.metre * ratio, diameter * ratio);
    if (header.metres) drawScale();
    placeMarks();
    explorer?.draw(ratio);
  }

  function drawScale() {
    const longest = 140 / view.metre;
    const power = 10 ** Math.floor(Math.log10(longest));
    const length = [5, 2, 1].map((step) => step * power).find((step) => step <= longest);
    $("scale").style.width = `${length * view.metre}px`;
    $("scale").firstElementChild.textContent = length >= 1000 ? `${length / 1000} km` : `${written(length)} m`;
  }

  function placeMarks() {
    const node = state.pinned >= 0 ? state.pinned : state.hovered;
    $("ring").hidden = node < 0;
    $("tip").hidden = state.hovered < 0;
    for (const [mark, at] of [[$("ring"), node], [$("tip"), state.hovered]]) {
      if (at < 0) continue;
      const [px, py] = view.toScreen(x[at], y[at]);
      const left = mark === $("tip") ? Math.min(px + 14, canvas.clientWidth - mark.offsetWidth - 4) : px;
      const top = mark === $("tip") ? Math.min(py + 14, canvas.clientHeight - mark.offsetHeight - 4) : py;
      Object.assign(mark.style, { left: `${left}px`, top: `${top}px` });
    }
  }

  const shown = (layer, node) => {
    if (layer.codes) return layer.labels[layer.codes[node]];
    return `${written(columns.get(layer.name)(node))}${layer.unit ? ` ${layer.unit}` : ""}`;
  };

  function describe(node) {
    $("chosen").textContent = node < 0 ? `Point at ${article} ${header.thing}` : `${thing} ${node}${node === state.pinned ? " (held)" : ""}`;
    if (node < 0) return;
    const named = new Set(layers.map((layer) => layer.name));
    const rows = layers.map((layer) => [layer.name, shown(layer, node), false]);
    for (const [name, column] of columns) {
      if (!named.has(name)) rows.push([name, written(column(node)), column(node) === 0]);
    }
    $("details").tBodies[0].replaceChildren(
      ...rows.map(([name, text, zero]) =>
        element("tr", { className: zero ? "zero" : "" }, element("td", { textContent: name }), element("td", { textContent: text })),
      ),
    );
  }

  const find = (px, py, reach = REACH) => {
    const [mx, my] = view.toMap(px, py);
    return Number.isNaN(mx) ? -1 : nearestNode(x, y, mx, my, Math.min(reach / view.metre, 1e8), visible);
  };

  function hover(px, py) {
    const node = find(px, py);
    if (node === state.hovered) return;
    state.hovered = node;
    if (node >= 0) {
      const facts = [state.layer, ...layers.slice(0, 2)].filter((layer, i, all) => all.indexOf(layer) === i);
      $("tip").textContent = facts.map((layer) => `${layer.name}: ${shown(layer, node)}`).join("\n");
    }
    if (state.pinned < 0) describe(node);
    placeMarks();
  }

  const pick = (px, py, reach) => hold(find(px, py, reach));

  function hold(node) {
    state.pinned = node === state.pinned ? -1 : node;
    describe(state.pinned);
    explorer.pick(state.pinned);
    redraw();
  }

  // x and y have changed: draw the points where they are now.
  function moved(order) {
    drawing.move(order);
    redraw();
  }

  function paintCategories(layer) {
    const values = Float32Array.from(layer.codes, (code) => (code + 0.5) / layer.labels.length);
    const paint = () => drawing.paint({ values, palette: bytesOf(layer.colors, (i) => !state.hidden.has(i)), smooth: false });
    const rows = layer.labels.map((label, i) => {
      const button = element(
        "button",
        { type: "button" },
        element("i"),
        element("span", { textContent: label }),
        element("span", { className: "count", textContent: layer.counts[i].toLocaleString("en") }),
      );
      button.firstElementChild.style.background = layer.colors[i];
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        if (!state.hidden.delete(i)) state.hidden.add(i);
        button.setAttribute("aria-pressed", String(!state.hidden.has(i)));
        paint();
        redraw();
      });
      return button;
    });
    const named = layer.labels.some((label, i) => label !== layer.colors[i]); // the colours of a picture need no legend
    $("legend").replaceChildren(...rows.filter((_, i) => named && (header.metres || layer.counts[i])));
    paint();
  }

  function paintScale(layer) {
    const column = columns.get(layer.name);
    const numbers = Float64Array.from(x, (_, node) => column(node));
    const finite = numbers.filter(Number.isFinite).sort();
    // One per cent at either end is cut off: a single long street would leave one colour for all others.
    const at = (share) => finite[Math.round(share * (finite.length - 1))];
    let [low, high] = [at(0.01), at(0.99)];
    if (!(low < high)) [low, high] = [at(0), at(1)];
    const span = high - low || 1;
    const values = Float32Array.from(numbers, (value) =>
      Number.isFinite(value) ? Math.min(Math.max((value - low) / span, 0), 1) : NONE,
    );
    drawing.paint({ values, palette: bytesOf(header.ramp, () => true), smooth: true });
    const bar = element("div", { className: "ramp" });
    bar.style.background = `linear-gradient(to right, ${header.ramp.join(", ")})`;
    const unit = layer.unit ? ` ${layer.unit}` : "";
    const ends = finite.length
      ? [`${low > at(0) ? "≤ " : ""}${written(low)}${unit}`, `${high < at(1) ? "≥ " : ""}${written(high)}${unit}`]
      : ["no values", ""];
    $("legend").replaceChildren(bar, element("div", { className: "ends" }, ...ends.map((textContent) => element("span", { textContent }))));
  }

  function colorBy(layer) {
    state.layer = layer;
    state.hidden.clear();
    $("note").textContent = layer.note || "";
    (layer.codes ? paintCategories : paintScale)(layer);
    redraw();
  }

  $("facts").textContent = header.facts;
  $("by").replaceChildren(...ways.map((way, value) => element("option", { value, textContent: way.name })));
  $("by").addEventListener("change", () => colorBy(ways[$("by").value]));
  $("in").addEventListener("click", () => view.zoom(1.5));
  $("out").addEventListener("click", () => view.zoom(1 / 1.5));
  $("fit").addEventListener("click", () => view.fit());
  listen(canvas, view, { hover, leave: () => hover(NaN, NaN), pick });
  // A window that changes its size still shows the whole city, until someone moves the map.
  new ResizeObserver(() => (view.moved ? redraw() : view.fit())).observe(canvas);
  canvas.addEventListener("webglcontextrestored", () => {
    drawing.restart();
    redraw();
  });
  DARK.addEventListener("change", redraw);
  $("scale").hidden = !header.metres;
  describe(-1);
  view.fit();
  colorBy(ways[0]);
  explorer = startExplorer({ header, array, layers, columns, view, x, y, z, streets, canvas, hold, moved, redraw });
  drawNow();
  $("message").hidden = true;
  window.cityMap = { view, x, y, columns, drawNow, find };
  document.body.dataset.state = "ready";
}

startMap().catch((error) => {
  $("message").textContent = error.message;
  document.body.dataset.state = "failed";
  console.error(error);
});
