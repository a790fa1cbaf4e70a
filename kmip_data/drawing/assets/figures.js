// Small figures beside the graph: a table of counts, bars, and curves. Names are text and nothing else.

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
      cell.style.background = `color-mix(in srgb, ${i === j ? HUES[0] : HUES[1]} ${Math.round(70 * share)}%, transparent)`;
      return cell;
    });
    return element("tr", {}, heading(i), ...cells);
  });
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

function axes(x, y, xs, ys) {
  return [
    drawn("path", { class: "axis", d: `M${LEFT} 6V${HIGH - BELOW}H${WIDE - 6}` }),
    // The last one ends at its mark, as there may be no room beyond it.
    ...xs.map(([at, text], i) => drawn("text", { x: x(at), y: HIGH - 8, "text-anchor": i ? "end" : "middle" }, text)),
    ...ys.map(([at, text]) => drawn("text", { x: LEFT - 4, y: y(at) + 4, "text-anchor": "end" }, text)),
  ];
}

const along = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

// Shares of wrong nodes, one bar a bin.
function errorBars(errors, unit) {
  const x = along(0, errors.length, LEFT, WIDE - 6);
  const y = along(0, 1, HIGH - BELOW, 8);
  const bars = errors.map(({ low, high, count, wrong }, i) => {
    const title = drawn("title", {}, `${written(low)}–${written(high)} ${unit}: ${wrong} of ${count} wrong`);
    const top = y(wrong / count);
    const place = { x: x(i) + 1, width: x(1) - x(0) - 2, y: top, height: HIGH - BELOW - top };
    return drawn("rect", { ...place, fill: HUES[1] }, title);
  });
  const whole = (value) => Math.round(value).toLocaleString("en");
  const ends = [[0.5, whole(errors[0].low)], [errors.length, `${whole(errors.at(-1).high)} ${unit}`]];
  const shares = errors.map(({ wrong, count }) => `${whole((100 * wrong) / count)} %`).join(", ");
  const lines = axes(x, y, ends, [[0, "0 %"], [0.5, "50 %"], [1, "100 %"]]);
  return picture(`Share of wrong nodes by rising eccentricity: ${shares}`, ...lines, ...bars);
}

function picture(label, ...parts) {
  return drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": label }, ...parts);
}

// One column of several runs over epochs.
function curveChart(runs, column) {
  const curves = runs.map(({ name, columns }, i) => ({ name, points: columns[column] || [], hue: HUES[i % HUES.length] }));
  const points = curves.flatMap((curve) => curve.points);
  const [least, most] = extent(points.map(([, value]) => value));
  const last = extent(points.map(([step]) => step).concat(1))[1];
  const unit = column.endsWith("by hop") ? "hop" : "epoch";
  const x = along(1, Math.max(last, 2), LEFT, WIDE - 12);
  const y = along(least, most > least ? most : least + 1, HIGH - BELOW, 8);
  const lines = curves.map(({ name, points: each, hue }) => {
    const d = each.map(([epoch, value], i) => `${i ? "L" : "M"}${x(epoch)} ${y(value)}`).join("");
    return drawn("path", { class: "curve", stroke: hue, d }, drawn("title", {}, name));
  });
  // Of one epoch there is no line.
  const dots = curves
    .filter((curve) => curve.points.length <= 60)
    .flatMap(({ points: each, hue }) => each.map(([epoch, value]) => drawn("circle", { cx: x(epoch), cy: y(value), r: 2.2, fill: hue })));
  const short = (value) => String(Number(value.toPrecision(3)));
  const marks = [...new Set(points.length ? [least, most] : [])].map((value) => [value, short(value)]);
  const steps = [[1, "1"], ...(last > 1 ? [[last, `${unit} ${last}`]] : [])];
  const svg = picture(`${column} over ${unit}s`, ...axes(x, y, steps, marks), ...lines, ...dots);
  const ending = (each) => (each.length ? `${short(each.at(-1)[1])} at the end` : "has none");
  const legend = curves.map(({ name, points: each, hue }) => keyed(hue, `${name}: ${ending(each)}`));
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
