// The legend of what the graph is coloured by. Its rows and bars are buttons: those that are pressed are shown alone.

const BINS = 24; // of a histogram, at most
const BAR = 84; // per cent of a row: right of it stands the number
let rangeText, kindText; // of a scale: the values between two edges of bars, and its kind if that is not plain

// RGBA bytes of hex colours.
const bytesOf = (colors) => Uint8Array.from(colors.flatMap(rgba));

// Colour by a layer: sets `state.at`, the colour position of each node, and `state.binOf`.
function startLegend(layer) {
  state.only.clear();
  [rangeText, kindText] = [null, ""];
  const verdict = isVerdict(layer) && `larger: ${layer.labels[WRONG]}`;
  const ringed = hasRings(layer) && `ringed: ${named("right or wrong").labels[WRONG]}, in the colour of the true class`;
  const sizes = verdict || isSized() && !layer.levels && `larger nodes have more ${DEGREES.includes(layer.name) ? layer.name.replace(/ of .*/, "") : `neighbours${header.numbers ? " shown" : ""}`}`;
  const isNamed = layer.name === "class" && !/^(class )?\d/.test(layer.labels[0]); // names say more
  const note = layer.note !== header.target && !isNamed && layer.note;
  const greyEdges = joinsClasses(layer) && `grey edges: ends differ in ${titleOf(layer.name)}`;
  $("note").textContent = [note && note.replace(/\btest node/, `test ${header.node_noun}`).replace(/(\d)%/g, "$1\u00a0%"), ringed, sizes, greyEdges].filter(Boolean).join("; ");
  const pieces = layer.levels ? legendOfInfluence(layer) : layer.codes ? legendOfCategories(layer) : legendOfScale(layer);
  $("legend").replaceChildren(...pieces);
  showPressed();
}

// True if edges have the colours of categories, and some join two of them.
function joinsClasses(layer) {
  const { codes } = layer;
  const isSeen = coloursEdges(layer) && !header.picture && streets.length / 2 <= BANDS; // more are too faint
  return isSeen && streets.some((to, i) => i % 2 && codes[streets[i - 1]] !== codes[to]);
}

// A node passes if nothing is pressed, or its row or bar is.
const passes = (node) => !state.only.size || state.only.has(state.binOf(node));

function showPressed() {
  for (const button of $("legend").querySelectorAll("button[data-bin]")) {
    button.setAttribute("aria-pressed", String(state.only.has(Number(button.dataset.bin))));
  }
  $("legend").classList.toggle("filtered", state.only.size > 0);
  $("range").textContent = shownText();
}

// How many nodes are shown and, of a scale, with which values; of all of them, the ends of its ramp say that.
function shownText() {
  if (!state.only.size) return kindText;
  const bins = [...state.only].filter((bin) => bin !== NONE);
  const range = rangeText && bins.length ? `${rangeText([Math.min(...bins), Math.max(...bins) + 1])}: ` : "";
  const count = x.reduce((sum, _, node) => sum + passes(node), 0);
  return `${range}${count.toLocaleString("en")} of ${x.length.toLocaleString("en")} ${header.node_noun}s; Escape shows all`;
}

function clearPressed() {
  state.only.clear();
  showPressed();
  updateLooks();
}

function press(bins) {
  for (const bin of bins) if (!state.only.delete(bin)) state.only.add(bin);
  if (state.only.size === $("legend").querySelectorAll("button[data-bin]").length) state.only.clear();
  showPressed();
  updateLooks();
}

function legendOfCategories(layer) {
  const colors = onGround(layer.colors);
  state.at = Float32Array.from(layer.codes, (code) => (code + 0.5) / layer.labels.length);
  state.binOf = (node) => layer.codes[node];
  drawing.paint(bytesOf(colors), false);
  if (layer.labels[0] === layer.colors[0][0]) { // of a picture, whose colours need no legend but greys do
    const isGrey = colors.every((color) => new Set(rgba(color).slice(0, 3)).size === 1);
    return isGrey ? [bar(["#000", "#fff"]), between(["0, black", "1, white"])] : [];
  }
  const most = Math.max(...layer.counts);
  const rows = layer.labels.map((label, i) => {
    const button = legendRow(label, colors[i], layer.counts[i], i);
    const share = (BAR * layer.counts[i]) / most;
    button.style.backgroundImage = `linear-gradient(to right, color-mix(in srgb, ${colors[i]} 22%, transparent) ${share}%, transparent 0)`;
    return button;
  });
  const order = labelsByLayer(layer).filter((i) => header.metres || layer.counts[i]);
  const known = layer.labels.flatMap((label, i) => (label === "no class" ? [] : [layer.counts[i] > 0]));
  const present = known.filter(Boolean).length;
  const text = `${present} of the ${known.length} classes ${present === 1 ? "is" : "are"} in this graph.`;
  const isPart = present < known.length && layer.name.endsWith("class") && !header.metres;
  return [...order.map((i) => rows[i]), ...(isPart ? [element("p", { className: "count", textContent: text })] : [])];
}

// Labels in the order of the layers of the graph, from above, if it is drawn in layers.
function labelsByLayer({ codes, labels }) {
  const heights = labels.map(() => []);
  codes.forEach((code, node) => heights[code].push(y[node]));
  const mean = (values) => values.reduce((sum, height) => sum + height, 0) / (values.length || 1);
  const isLayered = (header.origin || "").startsWith("in layers");
  return [...labels.keys()].sort((a, b) => (isLayered ? mean(heights[b]) - mean(heights[a]) : 0));
}

function legendOfScale(layer) {
  const numbers = columns.get(layer.name);
  // One per cent at either end has the colour of the end: a single long street would leave one for all others.
  const { low, high, least, most, missing, is_log, center } = layer.limits;
  const [toAxis, fromAxis] = is_log ? [Math.log10, (at) => 10 ** at] : [(value) => value, (at) => at];
  const [first, span] = [toAxis(low), toAxis(high) - toAxis(low)];
  // Zero has no place on a logarithmic scale.
  const isApart = (value) => is_log && center === undefined && value === 0;
  const zeros = x.filter((_, node) => isApart(numbers(node))).length;
  const floor = zeros ? x.reduce((lowest, _, node) => (numbers(node) > 0 ? Math.min(lowest, numbers(node)) : lowest), Infinity) : least;
  const place = (value) => Math.min(Math.max((toAxis(value) - first) / (span || 1), 0), 1);
  const valueAt = (share) => fromAxis(first + span * share);
  state.at = Float32Array.from(x.keys(), (node) => (Number.isFinite(numbers(node)) && !isApart(numbers(node)) ? place(numbers(node)) : NONE));
  // Bars of whole numbers stand for equally many of them each: otherwise some would be empty.
  const isWhole = x.every((_, node) => !Number.isFinite(numbers(node)) || Number.isInteger(numbers(node)));
  const step = isWhole && !is_log ? Math.ceil((high - low + 1) / BINS) : 0;
  const bins = step ? Math.ceil((high - low + 1) / step) : BINS;
  const binAt = (at) => (step ? Math.floor(Math.round(at * span) / step) : Math.min(Math.floor(at * BINS), BINS - 1));
  state.binOf = (node) => (state.at[node] < 0 ? NONE : binAt(state.at[node]));
  const colors = onGround(center === undefined ? header.ramp : header.diverging);
  drawing.paint(bytesOf(colors), true);
  const unit = layer.unit ? ` ${layer.unit}` : "";
  const grey = [zeros && `${zeros.toLocaleString("en")} with 0${unit}`, missing && `${missing.toLocaleString("en")} without a value`].filter(Boolean).join(", ");
  const without = grey ? [legendRow(grey, ink("missing"), "", NONE)] : [];
  if (missing === x.length) return without;
  const text = (value) => `${written(value, is_log ? Infinity : high - low)}${unit}`;
  const middle = isWhole ? Math.round(valueAt(0.5)) : valueAt(0.5);
  const isInMiddle = Math.abs(place(middle) - 0.5) < 0.02;
  const isEither = center !== undefined && (low > floor || high < most); // ends that mirror each other are written alike
  const ends = [`${isEither || low > floor ? "≤ " : ""}${text(low)}`, isInMiddle ? text(middle) : "", `${isEither || high < most ? "≥ " : ""}${text(high)}`];
  // A brush that reaches an end also shows the values beyond it.
  const edge = (bin, inner) => text(bin === 0 ? Math.min(floor, low) : bin === bins ? Math.max(most, high) : inner);
  rangeText = ([from, to]) => {
    const [first_of, last_of] = step ? [low + from * step, low + to * step - 1] : [from, to].map((bin) => valueAt(bin / BINS));
    return [...new Set([edge(from, first_of), edge(to, last_of)])].join(" to ");
  };
  kindText = is_log ? "logarithmic scale" : "";
  const scale = [histogram(bins, (bin) => rangeText([bin, bin + 1]), colors), bar(colors), between(ends)];
  return zeros ? [...without, ...scale] : [...scale, ...without];
}

// A row that shows the nodes of a bin alone when it is pressed.
function legendRow(label, color, number, bin) {
  const count = element("span", { className: "count", textContent: number.toLocaleString("en") });
  const button = element("button", { type: "button" }, swatch(color), element("span", { textContent: label }), count);
  button.dataset.bin = bin;
  button.addEventListener("click", () => press([bin]));
  return button;
}

const between = (texts) => element("div", { className: "ends" }, ...texts.map((textContent) => element("span", { textContent })));

function bar(colors) {
  const made = element("div", { className: "ramp" });
  made.style.background = `linear-gradient(to right, ${colors.join(", ")})`;
  return made;
}

// How many nodes have a value in each bin: bars that a pointer brushes over, or keys press one by one.
function histogram(bins, name, colors) {
  const counts = new Array(bins).fill(0);
  for (let node = 0; node < x.length; node++) if (state.at[node] >= 0) counts[state.binOf(node)]++;
  const most = Math.max(...counts);
  const bars = counts.map((count, bin) => {
    const label = `${name(bin)}: ${count.toLocaleString("en")}`;
    const button = element("button", { type: "button", title: label, ariaLabel: label });
    button.dataset.bin = bin;
    const fill = element("i");
    fill.style.height = `${count ? Math.max(3, (100 * count) / most) : 0}%`;
    fill.style.background = colors[Math.round((bin / Math.max(bins - 1, 1)) * (colors.length - 1))];
    button.append(fill);
    button.addEventListener("click", (event) => event.detail || press([bin])); // by a key; a pointer brushes
    return button;
  });
  const scale = element("span", { className: "most", textContent: `${most.toLocaleString("en")} ${header.node_noun}s` }); // of the tallest bar
  const box = element("div", { className: "histogram", role: "group", ariaLabel: "Histogram; press bars to show them alone" }, ...bars, scale);
  let first = null;
  const binAt = (event) => {
    const { left, width } = box.getBoundingClientRect();
    return Math.min(Math.max(Math.floor(((event.clientX - left) / width) * bins), 0), bins - 1);
  };
  const brush = (event) => {
    const [from, to] = [first, binAt(event)].sort((a, b) => a - b);
    state.only = new Set(Array.from({ length: to - from + 1 }, (_, i) => from + i));
    showPressed();
    updateLooks();
  };
  box.addEventListener("pointerdown", (event) => {
    const again = state.only.size === 1 && state.only.has(binAt(event));
    first = binAt(event);
    if (event.isTrusted) box.setPointerCapture(event.pointerId);
    brush(event);
    if (again) press([first]); // a second press on a bar shows all
  });
  box.addEventListener("pointermove", (event) => first !== null && brush(event));
  for (const name of ["pointerup", "pointercancel"]) box.addEventListener(name, () => (first = null));
  return box;
}
