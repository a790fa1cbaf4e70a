// Small figures next to the graph: a table of counts, and curves. Names are text and nothing else.

const [WIDE, HIGH, LEFT, BELOW] = [310, 170, 44, 24];

function drawn(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Rows are what is true, columns what was predicted, of classes that occur; darker: a larger share of the row.
function confusionTable(all, matrix) {
  const there = all.map((_, i) => i).filter((i) => matrix[i].some(Boolean) || matrix.some((row) => row[i]));
  const [names, counts] = [there.map((i) => all[i]), there.map((i) => there.map((j) => matrix[i][j]))];
  const short = names.map((name) => (names.length > 6 ? name.split(":")[0].slice(0, 8) : name));
  const heading = (i) => element("th", { textContent: short[i], title: names[i] });
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
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

const along = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

// One column of several runs over epochs.
function curveChart(runs, column) {
  const curves = runs.map(({ name, columns }, i) => ({ name, points: columns[column] || [], color: hue(i) }));
  const points = curves.flatMap((curve) => curve.points);
  const [least, most] = extent(points.map(([, value]) => value));
  const last = extent(points.map(([step]) => step).concat(1))[1];
  const unit = column.endsWith("by hop") ? "hop" : "epoch";
  const x = along(1, Math.max(last, 2), LEFT, WIDE - 12);
  const y = along(least, most > least ? most : least + 1, HIGH - BELOW, 8);
  const lines = curves.map(({ name, points: each, color }) => {
    const [first, ...rest] = each.map(([epoch, value]) => `${x(epoch)} ${y(value)}`);
    const d = first ? `M${first}L${[first, ...rest].join("L")}` : ""; // of one epoch a dot
    return drawn("path", { class: "curve", style: `stroke: ${color}`, d }, drawn("title", {}, name));
  });
  const short = (value) => String(Number(value.toPrecision(3)));
  const marks = [...new Set(points.length ? [least, most] : [])].map((value) =>
    drawn("text", { x: LEFT - 4, y: y(value) + 4, "text-anchor": "end" }, short(value)),
  );
  // The last step ends at its mark, as there may be no room beyond it.
  if (last > 1) marks.push(drawn("text", { x: x(last), y: HIGH - 8, "text-anchor": "end" }, `${unit} ${last}`));
  const axis = drawn("path", { class: "axis", d: `M${LEFT} 6V${HIGH - BELOW}H${WIDE - 6}` });
  const first = drawn("text", { x: x(1), y: HIGH - 8, "text-anchor": "middle" }, "1");
  const look = { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": `${column} over ${unit}s` };
  const svg = drawn("svg", look, axis, first, ...marks, ...lines);
  const ending = (each) => (each.length ? `${short(each.at(-1)[1])} at the end` : "has none");
  const legend = curves.map(({ name, points: each, color }) => keyed(color, `${name}: ${ending(each)}`));
  return [svg, ...legend];
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
