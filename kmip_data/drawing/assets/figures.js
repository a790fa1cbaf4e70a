// Small figures next to the graph: a table of counts, and curves. Names are text and nothing else.

const [WIDE, HIGH, LEFT, BELOW] = [310, 170, 44, 24];

function drawn(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const named = (name) => layers.find((layer) => layer.name === name);
const partsOf = (split) => split && layers.find(({ note, labels }) => note === split && labels && labels[0] === "train");

// How often a run predicts each class for nodes of each true class, of the test part if the run was trained on this graph.
function confusionOf(split, suffix) {
  const [truth, guess, parts] = [named("class"), named(`predicted class${suffix}`), partsOf(split)];
  if (!truth || !guess) return null;
  const matrix = truth.labels.map(() => new Array(truth.labels.length).fill(0));
  truth.codes.forEach((code, node) => {
    if (truth.labels[code] !== "no class" && (!parts || parts.codes[node] === 2)) matrix[code][guess.codes[node]]++;
  });
  return matrix;
}

// Rows are what is true, columns what was predicted, of classes that occur; darker: a larger share of the row.
function confusionTable(all, matrix) {
  const there = all.map((_, i) => i).filter((i) => matrix[i].some(Boolean) || matrix.some((row) => row[i]));
  const [names, counts] = [there.map((i) => all[i]), there.map((i) => there.map((j) => matrix[i][j]))];
  const short = names.map((name) => (names.length > 6 ? name.split(":")[0] : name));
  const heading = (i) => element("th", { title: names[i] }, element("span", { textContent: short[i] }));
  const head = element("tr", {}, element("th"), ...names.map((_, i) => heading(i)));
  const rows = counts.map((row, i) => {
    const sum = row.reduce((a, b) => a + b, 0);
    const cells = row.map((count, j) => {
      const share = sum ? count / sum : 0;
      const title = `${names[i]} said to be ${names[j]}: ${(100 * share).toFixed(1)} %`;
      const cell = element("td", { textContent: count.toLocaleString("en"), title });
      cell.style.background = `color-mix(in srgb, ${hue(i === j ? 0 : 1)} ${Math.round(70 * share)}%, transparent)`;
      return cell;
    });
    return element("tr", {}, heading(i), ...cells);
  });
  const isLong = short.some((name) => name.length > 5);
  const table = element("table", { className: isLong ? "tall" : "" }, element("thead", {}, head), element("tbody", {}, ...rows));
  const widest = Math.max(...counts.flat()).toLocaleString("en").length;
  table.style.minWidth = `calc(${isLong ? 8 : 2}em + ${names.length} * (${Math.max(widest, 2)}ch + 6px))`; // columns are equally wide
  return table;
}

const along = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

// Runs that differ in the seed alone as one curve: the mean at each step, and the range over the seeds.
function grouped(runs, column) {
  const groups = new Map();
  for (const { name, group, columns, best } of runs) {
    const key = group ?? name;
    if (!groups.has(key)) groups.set(key, { name, runs: 0, best: [], steps: new Map() });
    const found = groups.get(key);
    found.runs++;
    if (best) found.best.push(best);
    for (const [step, value] of columns[column] || []) found.steps.set(step, [...(found.steps.get(step) || []), value]);
  }
  const curves = [...groups.values()].map(({ name, runs: count, best, steps }) => {
    const points = [...steps].sort(([a], [b]) => a - b).map(([step, values]) => {
      const [low, high] = extent(values);
      return { step, mean: values.reduce((sum, value) => sum + value, 0) / values.length, low, high };
    });
    return { name, model: name.split("/").slice(-2, -1)[0] || name, count, best, points };
  });
  // The model is name enough, unless two curves are of one model.
  const once = (model) => curves.filter((curve) => curve.model === model).length === 1;
  return curves.map((curve, i) => ({ ...curve, label: once(curve.model) ? curve.model : curve.name, color: hue(i) }));
}

// The reference answers on the part that a column is measured on, by name.
const referencesOf = (runs, column) => new Map(runs.flatMap((run) => Object.entries((run.references || {})[column] || {})));

// One column over epochs, hops or edges: a line and a band for each group of runs.
function curveChart(runs, column) {
  const curves = grouped(runs, column);
  const isPercent = runs.some(({ percent = [] }) => percent.includes(column));
  const text = (value) => (isPercent ? `${written(100 * value)}\u00a0%` : written(value));
  const all = curves.flatMap(({ points }) => points);
  const [least, most] = extent([...all.flatMap(({ low, high }) => [low, high]), ...referencesOf(runs, column).values()]);
  const last = extent(all.map(({ step }) => step).concat(1))[1];
  const unit = { hop: "hop", distance: "edge" }[column.split("by ")[1]] || "epoch";
  const x = along(1, Math.max(last, 2), LEFT + 10, WIDE - 12); // a ring at the first step is clear of the axis
  const y = along(least, most > least ? most : least + 1, HIGH - BELOW, 8);
  const path = (points, of) => points.map((point) => `${x(point.step)} ${y(point[of])}`);
  const isEpoch = unit === "epoch";
  const lines = curves.flatMap(({ label, points, count, color, best }) => {
    if (!points.length) return [drawn("path", { class: "curve", d: "" })];
    const middle = path(points, "mean");
    const d = `M${middle[0]}L${middle.join("L")}`; // of one epoch a dot
    const line = drawn("path", { class: "curve", style: `stroke: ${color}`, d }, drawn("title", {}, label));
    // A ring on the curve at the best epoch of each run, whose weights the run has.
    const rings = points.filter(({ step }) => isEpoch && best.includes(step)).map(({ step, mean }) =>
      drawn("circle", { class: "best", cx: x(step), cy: y(mean), r: 4, style: `stroke: ${color}` }, drawn("title", {}, `${label}: best epoch ${step}, ${text(mean)}`)));
    const band = [...path(points, "high"), ...path(points, "low").reverse()].join("L");
    return [...(count > 1 ? [drawn("path", { class: "band", style: `fill: ${color}`, d: `M${band}Z` })] : []), line, ...rings];
  });
  const marks = [...new Set(all.length ? [least, most] : [])].map((value) =>
    drawn("text", { x: LEFT - 4, y: y(value) + 4, "text-anchor": "end" }, text(value)),
  );
  // The last step ends at its mark, as there may be no room beyond it.
  if (last > 1) marks.push(drawn("text", { x: x(last), y: HIGH - 8, "text-anchor": "end" }, `${unit} ${last}`));
  const axis = drawn("path", { class: "axis", d: `M${LEFT} 6V${HIGH - BELOW}H${WIDE - 6}` });
  const first = drawn("text", { x: x(1), y: HIGH - 8, "text-anchor": "middle" }, "1");
  const look = { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": `${column} over ${unit}s` };
  const references = [...referencesOf(runs, column)].map(([name, value]) =>
    drawn("path", { class: "reference", d: `M${LEFT} ${y(value)}H${WIDE - 6}` }, drawn("title", {}, `${name}: ${text(value)}`)));
  const spreads = runs.flatMap(({ best, columns, errors = {} }) => (columns[column] || []).flatMap(([step, value]) => {
    if (!isEpoch || step !== best || !errors[column]) return [];
    return [drawn("path", { class: "spread", d: `M${x(step)} ${y(value - errors[column])}V${y(value + errors[column])}` })];
  }));
  const svg = drawn("svg", look, axis, first, ...marks, ...references, ...lines, ...spreads);
  // The value at the epoch whose weights the run has, else the last.
  const resultOf = (points, best) => {
    const rings = points.filter(({ step }) => isEpoch && best.includes(step));
    const listed = (of) => rings.map(of).join(", ");
    if (rings.length) return `${listed(({ mean }) => text(mean))} at the ring of best epoch ${listed(({ step }) => step)}`;
    return points.length ? `${text(points.at(-1).mean)} at the end` : "has none";
  };
  const runsOf = (count) => (count > 1 ? ` (${count} seeds)` : "");
  const names = [...referencesOf(runs, column)].sort(([, a], [, b]) => b - a).map(([name, value]) => `${name} ${text(value)}`);
  const notes = [];
  if (names.length) notes.push(`Dashed, on ${column.split("_")[0]}${names.length > 1 ? ", from above" : ""}: ${names.join(", ")}.`);
  if (spreads.length) notes.push("Bars at rings: ± the standard error of one run.");
  return [
    svg,
    ...curves.map(({ label, count, points, color, best }) => keyed(color, `${label}${runsOf(count)}: ${resultOf(points, best)}`)),
    ...notes.map((textContent) => element("p", { textContent })),
  ];
}

// Rows of distance, mean error and number of nodes. Of the test nodes of a run on one graph: hops from the
// nearest training node.
function errorByHops(split, suffix) {
  const [error, parts] = [named(`error${suffix}`) || named(`absolute error${suffix}`), partsOf(split)];
  if (!error || !parts) return null;
  const hops = new Map(Array.from(x.keys()).filter((node) => parts.codes[node] === 0).map((node) => [node, 0]));
  for (const [from, hop] of hops) {
    for (const other of graph.other.subarray(graph.first[from], graph.first[from + 1])) if (!hops.has(other)) hops.set(other, hop + 1);
  }
  const [of, sums] = [error.codes ? (node) => error.codes[node] : columns.get(error.name), new Map()];
  for (const [node, hop] of hops) {
    if (parts.codes[node] !== 2 || Number.isNaN(of(node))) continue;
    const [sum, count, squares] = sums.get(hop) || [0, 0, 0];
    sums.set(hop, [sum + of(node), count + 1, squares + of(node) ** 2]);
  }
  // Rows also have the standard error of the mean, of two nodes or more.
  const rows = [...sums].map(([hop, [sum, count, squares]]) => {
    const variance = Math.max(squares - sum ** 2 / count, 0) / (count - 1);
    return [hop, sum / count, count, count > 1 ? Math.sqrt(variance / count) : 0];
  }).sort(([a], [b]) => a - b);
  const note = `${error.codes ? "Classes off" : "Absolute error"}, mean of the test ${header.node_noun}s by hops to the nearest one in training, ± its standard error. A paler bar stands for fewer ${header.node_noun}s.`;
  return rows.length ? { rows, note, unit: error.codes ? "classes off" : error.unit ?? "", step: "hop" } : null;
}

// Of a run on many graphs whose data have distances: that between a node and what its target depends on.
function errorByDistance(run) {
  const name = Object.keys(run.columns).find((column) => column.endsWith(" by distance"));
  if (!name) return null;
  const metric = name.split(" ")[0].replace("mae", "absolute error");
  const note = `Mean ${metric} by edges between a node and what its target depends on; a bar begins at its distance.`;
  return { rows: run.columns[name].map(([far, value]) => [far, value, 1]), note, unit: "", step: "edge" };
}

// Bars of the mean error at each distance; rare distances are paler.
function errorChart({ rows, note, unit, step }, most) {
  const away = (far) => `${far} ${step}${far === 1 ? "" : "s"}`;
  const nodes = Math.max(...rows.map(([, , count]) => count));
  const wide = (WIDE - LEFT - 6) / rows.length;
  const scaled = (value) => Math.min(value / (most || 1), 1) * (HIGH - BELOW - 10);
  const bars = rows.flatMap(([hop, mean, count, spread = 0], i) => {
    const high = scaled(mean);
    const [middle, ends] = [LEFT + (i + 0.5) * wide, [mean - spread, mean + spread].map((value) => HIGH - BELOW - scaled(Math.max(value, 0)))];
    const look = { x: LEFT + i * wide + 1, y: HIGH - BELOW - high, width: Math.max(wide - 2, 1), height: high };
    const style = `stroke: ${hue(1)}; fill: ${hue(1)}; fill-opacity: ${0.3 + 0.7 * Math.sqrt(count / nodes)}`;
    const nodesOf = step === "hop" ? `, ${count.toLocaleString("en")} nodes` : "";
    const bar = drawn("rect", { ...look, style }, drawn("title", {}, `${away(hop)}: ${written(mean)}${unit && ` ${unit}`}${nodesOf}`));
    return spread ? [bar, drawn("path", { class: "spread", d: `M${middle} ${ends[0]}V${ends[1]}` })] : [bar];
  });
  const texts = [[LEFT - 4, 12, written(most)], [LEFT - 4, HIGH - BELOW, "0"]].map(([x, y, text]) => drawn("text", { x, y, "text-anchor": "end" }, text));
  const ends = [rows[0], rows.at(-1)].map(([hop], i) => drawn("text", { x: i ? WIDE - 6 : LEFT, y: HIGH - 8, "text-anchor": i ? "end" : "start" }, away(hop)));
  return drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": note }, ...bars, ...texts, ...ends);
}

// The metric on test of the first two runs, and in which unit, of what, and that of a constant answer.
function scoresOf(curves, parts) {
  const judged = curves.filter(({ name, answers = [] }) => answers.some(([row]) => row === name)).slice(0, 2);
  if (!judged.length) return null;
  const [, metric, unit] = judged[0].answers[0][0].match(/^(.*?)(?: \[(.*)\])?$/);
  const text = (value) => `${unit === "%" ? Number(value.split(" ")[0]).toFixed(1) : value.split(" ")[0]}${unit ? ` ${unit}` : ""}`;
  const of = ({ answers }, wanted) => answers.filter(([row]) => row === wanted).map(([, value]) => text(value));
  const [constant] = of(judged[0], "constant answer");
  return [
    judged.map((run) => `${shortName(run.name, judged)} ${of(run, run.name)}`).join(", "),
    `${metric} on ${parts ? `the ${parts.counts[2].toLocaleString("en")} test ${header.node_noun}s` : "test"}${constant ? ` (guessing one ${/accuracy|MCC/.test(metric) ? "class" : "value"} for all: ${constant.replace(" ", "\u00a0")})` : ""}`,
  ];
}

// The metric of each run on test, and of the reference answers that were fitted on the same parts; rows that
// runs share, once.
function showAnswers(runs, place) {
  const rows = new Map(runs.flatMap(({ answers = [] }) => answers).map((row) => [row.join("\n"), row]));
  place.hidden = rows.size < 2;
  const row = ([name, value]) => {
    const [number, spread] = value.split(/(?= ±)/); // numbers are below each other, whatever follows them
    const cells = [number, ...(spread ? [spread] : [])].map((textContent) => element("td", { textContent }));
    return element("tr", {}, element("th", { textContent: name }), ...cells);
  };
  // The metric, then the runs, then the reference answers.
  const order = ([name, value]) => (value ? 1 + !runs.some((run) => run.name === name) : 0);
  const sorted = [...rows.values()].sort((a, b) => order(a) - order(b));
  place.querySelector("tbody").replaceChildren(...sorted.map(row));
  const isSpread = sorted.some(([, value]) => value.includes("±"));
  place.querySelector("p").textContent = isSpread ? `±: standard error of one run over its test ${header.node_noun === "intersection" ? "intersections" : "items"}.` : "";
}

// A choice of columns, and below it the chart of the one that is chosen. Whether there is any.
function showCurves(curves, select, place) {
  const columns = [...new Set(curves.flatMap((curve) => Object.keys(curve.columns)))].filter((name) => name !== "epoch");
  const draw = () => place.replaceChildren(...curveChart(curves, select.value));
  select.replaceChildren(...columns.map((name) => element("option", { value: name, textContent: name.replaceAll("_", " ") })));
  select.value = columns.find((name) => name.startsWith("val_") && name !== "val_loss") || columns[0];
  select.addEventListener("change", draw);
  if (columns.length) draw();
  return columns.length > 0;
}
