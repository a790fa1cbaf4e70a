// What the explorer adds to the map: balls, farthest paths, chosen keys, search, and figures of runs.

const INKS = { ball: HUES[5], path: HUES[1] };
const OTHERS = HUES.filter((hue) => !Object.values(INKS).includes(hue));
const hueOf = (head) => OTHERS[(head + 1) % OTHERS.length];
const LISTED = 60; // keys in the table: the heaviest ones

function startExplorer({ header, array, layers, columns, view, x, y, z, streets, canvas, hold, moved, redraw }) {
  const { explore } = header;
  const graph = neighbourhoods(x.length, streets, explore.lengths && array(explore.lengths));
  const byName = new Map(layers.map((layer) => [layer.name, layer]));
  const chosen = readKeys(explore.keys, array, x.length);
  const own = z && [x.slice(), y.slice(), z]; // places before they were turned
  const state = { node: -1, ball: new Map(), path: null, links: [] };
  const overlay = $("overlay");

  function pick(node) {
    Object.assign(state, { node, ball: new Map(), path: null });
    if (node >= 0) {
      state.ball = explore.hops ? ballOf(graph, node, explore.hops) : new Map();
      if (explore.lengths && explore.hops) state.path = farthestPath(graph, state.ball, node);
    }
    tell();
    listKeys();
    // What is said may lie below the legend, and on a phone below the map.
    if (node >= 0) $("about").scrollIntoView({ block: "nearest" });
    redraw();
  }

  function tell() {
    const { node, ball, path } = state;
    const lines = [];
    if (node < 0) {
      lines.push(`Click a${header.thing[0] === "i" ? "n" : ""} ${header.thing}, or press Enter on the one in the middle.`);
    } else {
      const [truth, said] = ["class", "predicted class"].map((name) => byName.get(name));
      if (truth && !said) lines.push(`Class ${truth.labels[truth.codes[node]]}.`);
      if (truth && said) {
        const [a, b] = [truth, said].map(({ codes }) => codes[node]);
        const off = explore.map ? `: wrong by ${Math.abs(a - b)}` : ": wrong";
        lines.push(`Class ${truth.labels[a]}, predicted ${said.labels[b]}${a === b ? ": right" : off}.`);
      }
      const within = `${ball.size.toLocaleString("en")} intersections within ${explore.hops} hops.`;
      const neighbours = `${ball.size - 1} ${ball.size === 2 ? "neighbour" : "neighbours"}.`;
      if (explore.hops) lines.push(inked(INKS.ball, explore.map ? within : neighbours));
      if (path) {
        const [length, stored] = [Math.fround(path.length), columns.get("eccentricity")(node)];
        const far = `The farthest, ${path.to}, is ${written(length)} ${explore.unit} away over ${path.path.length - 1} streets.`;
        lines.push(inked(INKS.path, far));
        lines.push(
          length === stored
            ? "That is the eccentricity, which makes the class."
            : `The eccentricity that makes the class is ${written(stored)} ${explore.unit}: it was published so.`,
        );
      } else if (explore.map && !explore.lengths) lines.push("The path that makes the class is not drawn: a build keeps no travel times.");
      if (explore.map) lines.push(mapLink(node));
    }
    $("story").replaceChildren(...lines.map((line) => element("span", {}, line)));
  }

  // A sentence about what is drawn in this colour.
  function inked(color, text) {
    const swatch = element("i");
    swatch.style.background = color;
    return element("span", { className: "key" }, swatch, element("span", { textContent: text }));
  }

  function mapLink(node) {
    const osm = columns.get("osm_id");
    const [longitude, latitude] = header.degrees.map((name) => columns.get(name)(node).toFixed(6));
    const place = osm ? `node/${osm(node)}` : `?mlat=${latitude}&mlon=${longitude}#map=18/${latitude}/${longitude}`;
    const textContent = osm ? `OpenStreetMap node ${osm(node)}` : "On OpenStreetMap";
    return element("a", { href: `https://www.openstreetmap.org/${place}`, textContent, target: "_blank", rel: "noopener noreferrer" });
  }

  // The chosen keys of the node in the layer and heads that are asked for, heaviest first.
  function listKeys() {
    state.links = [];
    if (!chosen) return;
    const at = state.node < 0 ? undefined : chosen.place(state.node);
    $("keys").hidden = state.node < 0;
    if (state.node < 0) return;
    const none = `This ${header.thing} is none of those whose keys are in the page.`;
    $("kept").textContent = at === undefined ? none : chosen.note(header.thing);
    if (at === undefined) {
      const near = chosen.nearest((node) => Math.hypot(x[node] - x[state.node], y[node] - y[state.node]));
      const button = element("button", { type: "button", textContent: `Show ${near}, the nearest that is.` });
      button.addEventListener("click", () => show(near));
      $("kept").append(" ", button);
    } else {
      const head = $("head").value;
      state.links = chosen.of(at, Number($("layer").value)).filter((link) => head === "all" || link.head === Number(head));
      state.links.sort((a, b) => b.weight - a.weight);
    }
    const away = (key) => (header.metres ? `${Math.round(Math.hypot(x[key] - x[state.node], y[key] - y[state.node]))} m` : "");
    const heading = ["key", "head", "weight", ...(header.metres ? ["away"] : [])];
    $("chosen-keys").tHead.replaceChildren(element("tr", {}, ...heading.map((textContent) => element("th", { textContent }))));
    const rows = state.links.slice(0, LISTED).map(({ key, head, weight }) => {
      const button = element("button", { type: "button", textContent: String(key) });
      button.addEventListener("click", () => show(key));
      const texts = [String(head), weight.toFixed(4), ...(header.metres ? [away(key)] : [])];
      const row = element("tr", {}, element("td", {}, button), ...texts.map((textContent) => element("td", { textContent })));
      row.cells[1].style.borderLeft = `5px solid ${hueOf(head)}`;
      return row;
    });
    $("chosen-keys").tBodies[0].replaceChildren(...rows);
  }

  // Hold a node; bring it into the middle where it is out of sight.
  function show(node) {
    const sides = [canvas.clientWidth, canvas.clientHeight];
    if (view.toScreen(x[node], y[node]).some((at, i) => !(at > 0 && at < sides[i]))) {
      view.center = [x[node], y[node]];
      view.moved = true;
    }
    if (state.node === node) redraw();
    else hold(node);
  }

  function search(text) {
    const wanted = Number(text.trim());
    const osm = columns.get("osm_id");
    let node = -1;
    if (text.trim() && Number.isInteger(wanted)) {
      for (let i = 0; osm && node < 0 && i < x.length; i++) if (osm(i) === wanted) node = i;
      if (node < 0 && wanted >= 0 && wanted < x.length) node = wanted;
    }
    if (node >= 0) show(node);
    $("query").setCustomValidity(node < 0 ? `There is no such ${header.thing}.` : "");
    $("query").reportValidity();
  }

  function draw(ratio) {
    if (overlay.width !== canvas.width || overlay.height !== canvas.height) {
      Object.assign(overlay, { width: canvas.width, height: canvas.height });
    }
    const pen = overlay.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    if (state.node < 0) return;
    const line = (nodes) => nodes.forEach((node, i) => pen[i ? "lineTo" : "moveTo"](...view.toScreen(x[node], y[node])));
    const dot = (node, radius, fillStyle) => {
      pen.beginPath();
      pen.arc(...view.toScreen(x[node], y[node]), radius, 0, 2 * Math.PI);
      Object.assign(pen, { fillStyle }).fill();
    };
    pen.beginPath();
    for (const node of state.ball.keys()) {
      // One hop: the edges of the node itself; else every edge inside the ball, once.
      if (explore.hops === 1 && node !== state.node) break;
      for (let e = graph.first[node]; e < graph.first[node + 1]; e++) {
        if (explore.hops === 1 || (graph.other[e] > node && state.ball.has(graph.other[e]))) line([node, graph.other[e]]);
      }
    }
    Object.assign(pen, { strokeStyle: INKS.ball, lineWidth: 2, globalAlpha: 0.9 });
    pen.stroke();
    for (const { key, head, weight } of state.links) {
      pen.beginPath();
      line([state.node, key]);
      Object.assign(pen, { strokeStyle: hueOf(head), lineWidth: 0.6 + 5 * weight, globalAlpha: 0.35 + 0.65 * weight });
      pen.stroke();
      dot(key, 2 + 4 * Math.sqrt(weight), hueOf(head));
    }
    pen.globalAlpha = 1;
    if (state.path) {
      pen.beginPath();
      line(state.path.path);
      Object.assign(pen, { strokeStyle: INKS.path, lineWidth: 4, lineJoin: "round" });
      pen.stroke();
      dot(state.path.to, 6, INKS.path);
    }
  }

  function turn() {
    const [across, deep, up] = own;
    const [angle, tilt] = ["turn", "tilt"].map((id) => (Number($(id).value) * Math.PI) / 180);
    const depth = new Float32Array(x.length);
    for (let i = 0; i < x.length; i++) {
      const back = Math.sin(angle) * across[i] + Math.cos(angle) * deep[i];
      x[i] = Math.cos(angle) * across[i] - Math.sin(angle) * deep[i];
      y[i] = Math.cos(tilt) * up[i] + Math.sin(tilt) * back;
      depth[i] = Math.cos(tilt) * back - Math.sin(tilt) * up[i];
    }
    moved(Uint32Array.from(depth.keys()).sort((a, b) => depth[b] - depth[a]));
  }

  if (own) {
    $("turning").hidden = false;
    for (const id of ["turn", "tilt"]) $(id).addEventListener("input", turn);
    turn();
  }
  if (chosen) {
    const options = (texts) => texts.map(([value, textContent]) => element("option", { value, textContent }));
    const heads = Array.from({ length: explore.keys.layers[0].heads }, (_, i) => [i, String(i)]);
    $("layer").replaceChildren(...options(explore.keys.layers.map((_, i) => [i, String(i)])));
    $("head").replaceChildren(...options([["all", "all"], ...heads]));
    for (const id of ["layer", "head"]) {
      $(id).addEventListener("change", () => {
        listKeys();
        redraw();
      });
    }
  }
  const ways = columns.has("osm_id") ? "OpenStreetMap id or number" : `number of the ${header.thing}`;
  $("search").firstElementChild.textContent = `Search by ${ways}`;
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search($("query").value);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === $("query")) return;
    event.preventDefault();
    $("query").focus();
  });
  $("query").addEventListener("input", () => $("query").setCustomValidity(""));
  showFigures(explore);
  tell();
  window.explorer = { state, graph, chosen, show, search };
  return { draw, pick };
}

// The chosen keys: (S, H, k) of each layer, for the S nodes that are in the page.
function readKeys(keys, array, count) {
  if (!keys) return null;
  const nodes = array(keys.nodes);
  const places = new Map(Array.from(nodes, (node, at) => [node, at]));
  const layers = keys.layers.map((layer) => ({ ...layer, indices: array(layer.indices), weights: array(layer.weights) }));
  return {
    place: (node) => places.get(node),
    nearest: (distance) => nodes.reduce((best, node) => (distance(node) < distance(best) ? node : best)),
    note: (thing) => (keys.all ? "" : `Keys of ${nodes.length.toLocaleString("en")} ${thing}s, drawn at random, are in the page.`),
    of(at, layer) {
      const { heads, k, indices, weights } = layers[layer];
      const found = [];
      for (let i = at * heads * k; i < (at + 1) * heads * k; i++) {
        if (indices[i] < count) found.push({ key: indices[i], head: Math.floor(i / k) % heads, weight: weights[i] / 65535 });
      }
      return found;
    },
  };
}

function showFigures({ run, words, label, names, confusion, measured, errors, unit, curves }) {
  const line = (text) => text.replaceAll("\n", ", ");
  const right = label === words ? ": right" : "";
  const said = [label && `Label: ${line(label)}`, words && `Predicted: ${line(words)}${right}`, run && `Run ${run}`].filter(Boolean);
  $("words").hidden = !said.length;
  $("words").textContent = said.join("\n");
  const put = (id, text, ...figures) => {
    $(id).hidden = false;
    $(id).querySelector("p").textContent = text;
    $(id).querySelector("div").replaceChildren(...figures);
  };
  const of = measured === "test" ? "Nodes of the test part." : "All nodes.";
  if (confusion) put("confusion", `${of} Rows are what is true.`, confusionTable(names, confusion));
  if (errors) put("errors", `${of} Tenths by eccentricity, and the share of each that is wrong.`, errorBars(errors, unit));
  $("curves").hidden = !showCurves(curves || [], $("column"), $("curves").querySelector("div"));
}
