// Influence of all nodes on the output of one, of up to two runs next to each other.

const DECADES = 4; // that a byte spans, below the strongest influence of another node
// Colours of weak to strong influence, on light and on dark ground: the stronger, the farther from the ground, so that
// what stands out is what matters.
const STRENGTHS = [
  ["#f3d572", "#f0ab52", "#e27a45", "#c03a4e", "#701c5e", "#150620"],
  ["#54422f", "#6e5030", "#96653a", "#dd8546", "#fbc583", "#fff6e6"],
];

// Streets without influence are paler than other lines, so that the weakest influence is told from none.
const untouched = () => mixed(ink("line"), ink("ground"), 0.35);

function readInfluence(runs) {
  return (runs || []).map(({ name, nodes, values }) => {
    const [known, bytes] = [array(nodes), array(values)];
    const place = new Map(Array.from(known, (node, at) => [node, at]));
    const of = (node) => bytes.subarray(place.get(node) * x.length, (place.get(node) + 1) * x.length);
    return { name, known, place, of };
  });
}

// The node itself, or the nearest one whose influence is in the page.
const knownNear = (node) => nearestNode(x, y, x[node], y[node], 1e8, (other) => influence[0].place.has(other));

// 0 for no influence at all, else 0 to 1 over the decades.
const levelAt = (pane, node) => (state.node < 0 ? 0 : influence[pane].of(state.node)[node] / 255);

function influenceText(pane, node) {
  const level = levelAt(pane, node);
  if (node === state.node) return "this node";
  return level ? `${written(100 * 10 ** (DECADES * (level - 1)))} % of the strongest` : "none";
}

const modelOf = (name) => name.split("/").slice(-2, -1)[0] || name;

// The model is name enough, unless two of the runs are of one model.
function shortName(name, runs = influence) {
  const same = runs.filter((each) => modelOf(each.run ?? each.name) === modelOf(name));
  return same.length > 1 ? name.split("/").slice(-2).join("/") : modelOf(name);
}

function legendOfInfluence(layer) {
  state.at = new Float32Array(x.length);
  state.binOf = () => 0;
  const colors = onGround(STRENGTHS);
  drawing.paint(bytesOf(colors), true);
  const steps = Array.from({ length: DECADES / 2 + 1 }, (_, i) => `${i ? "" : "≤ "}${written(100 * 10 ** (2 * i - DECADES))} %`);
  return [bar(colors), between(steps), keyed(header.metres ? untouched() : ink("line"), "no influence")];
}

// Strength of nodes of no influence, on streets and elsewhere: pale as lines, so that the shape of the graph is seen.
const [ON_STREETS, REST] = [0.03, 0.5];

// Fill what the nodes of a pane look like; strong ones are on top.
function looksOfInfluence(pane, looks) {
  for (let node = 0; node < x.length; node++) {
    const level = levelAt(pane, node);
    const look = level ? [level, 0.8 + 0.2 * level, 0.7 + 1.1 * level, level] : [NONE, header.metres ? ON_STREETS : REST, 0.7, 0];
    looks.set(look, 4 * node);
  }
}

// How far influence reaches, in words: intersections, and hops.
function reachText(pane) {
  if (state.node < 0) return "";
  let [count, far] = [0, 0];
  const hops = ballOf(graph, state.node, Infinity);
  influence[pane].of(state.node).forEach((value, node) => {
    if (!value || node === state.node) return;
    count++;
    far = Math.max(far, hops.get(node) ?? 0);
  });
  const others = x.length - 1;
  const of = `${others.toLocaleString("en")} others`;
  if (count === others) return `influenced by all ${of}`;
  return `influenced by ${count.toLocaleString("en")} of ${of}, up to ${far} ${far === 1 ? "hop" : "hops"} away`;
}

// A title on each pane.
function showTitles() {
  const on = Boolean(state.layer.levels);
  $("panes").hidden = !on;
  if (!on) return;
  const boxes = paneBoxes();
  const titles = influence.map(({ name }, pane) => {
    const title = element("p", { title: name }, element("b", { textContent: shortName(name) }), element("span", { textContent: reachText(pane) }));
    title.className = boxes[1] && boxes[1].left ? "" : "above";
    Object.assign(title.style, { left: `${boxes[pane].left}px`, top: `${boxes[pane].top}px`, width: `${boxes[pane].width}px` });
    return title;
  });
  $("panes").replaceChildren(...titles);
}
