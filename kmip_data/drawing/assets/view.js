// The part of the graph that is seen, and how pointer, wheel, fingers and keys change it.

// `size` gives width and height of one pane, `bounds` the least and largest x and y, `covered` what texts and buttons
// take on the right, above and below, and the margin, `closest` how many pixels a metre has at most where all is seen;
// `turn` turns what is in space by a drag of so many pixels.
function makeView(size, bounds, onChange, { turn, covered, closest }) {
  const view = { center: [0, 0], metre: 1, moved: false, corner: [0, 0] }; // middle in metres, CSS pixels a metre
  const middle = () => size().map((side) => side / 2);
  const whole = () => {
    const [[west, east], [south, north]] = bounds();
    const [right, above, below, margin] = covered();
    const [width, height] = middle().map((half, i) => 2 * (half - margin) - (i ? above + below : right));
    return Math.max(Math.min(width / Math.max(east - west, 1), height / Math.max(north - south, 1), closest()), 1e-6);
  };
  const move = (center, metre, moved = true) => {
    Object.assign(view, { center, metre, moved });
    onChange();
  };

  view.whole = whole; // pixels of a metre where all is seen
  view.zoomed = () => view.metre / whole();
  view.toScreen = (x, y) => {
    const [across, down] = middle();
    return [across + (x - view.center[0]) * view.metre, down - (y - view.center[1]) * view.metre];
  };
  view.toMap = (px, py) => {
    const [across, down] = middle();
    return [view.center[0] + (px - across) / view.metre, view.center[1] - (py - down) / view.metre];
  };
  view.fit = () => {
    const [[west, east], [south, north]] = bounds();
    const metre = whole();
    const [right, above, below, margin] = covered();
    // In the middle of the canvas, or aside as far as buttons need.
    const free = (size()[0] - (east - west) * metre) / 2 - margin;
    const aside = Math.min(Math.max(right - free, 0), right / 2);
    move([(west + east) / 2 + aside / metre, (south + north + (above - below) / metre) / 2], metre, false);
  };
  view.pan = (dx, dy) => move([view.center[0] - dx / view.metre, view.center[1] + dy / view.metre], view.metre);
  // Show a place in the middle, zoomed so many times.
  view.lookAt = (center, zoomed) => move(center, Math.min(whole() * Math.max(zoomed, 0.25), 100));
  view.drag = turn || view.pan;
  // Where a place of the canvas lies in its pane, whose corner is remembered.
  view.inPane = (place) => {
    const { left, top } = paneBoxes().findLast((box) => place[0] >= box.left && place[1] >= box.top) ?? { left: 0, top: 0 };
    view.corner = [left, top];
    return [place[0] - left, place[1] - top];
  };
  // Zoom so that what is at (px, py) stays there.
  view.zoom = (factor, ...at) => {
    const fixed = view.toMap(...(at.length ? at : middle()));
    const metre = Math.min(Math.max(view.metre * factor, whole() / 4), 100);
    move(view.center.map((center, i) => fixed[i] + ((center - fixed[i]) * view.metre) / metre), metre);
  };
  return view;
}

// Report hover(px, py), leave() and pick(px, py); move the view by itself.
function listen(canvas, view, { hover, leave, pick }) {
  const fingers = new Map();
  let moved = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [a, b] = [...fingers.values()];
    return { distance: Math.hypot(a[0] - b[0], a[1] - b[1]), middle: [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2] };
  };
  const step = 80;
  const by = (event) => (event.shiftKey ? view.pan : view.drag); // Shift moves what is turned else
  const keys = {
    ArrowLeft: (event) => by(event)(step, 0),
    ArrowRight: (event) => by(event)(-step, 0),
    ArrowUp: (event) => by(event)(0, step),
    ArrowDown: (event) => by(event)(0, -step),
    "+": () => view.zoom(1.5),
    "=": () => view.zoom(1.5),
    "-": () => view.zoom(1 / 1.5),
    0: () => view.fit(),
    Enter: () => pick(...view.toScreen(...view.center), Infinity),
  };
  const handlers = {
    pointerdown(event) {
      if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
      if (!fingers.size) moved = 0;
      fingers.set(event.pointerId, place(event));
    },
    pointermove(event) {
      const [before, now] = [fingers.get(event.pointerId), place(event)];
      if (!before) return hover(...view.inPane(now));
      const held = fingers.size === 2 && spread();
      fingers.set(event.pointerId, now);
      if (held) {
        const { distance, middle } = spread();
        view.pan(middle[0] - held.middle[0], middle[1] - held.middle[1]);
        if (held.distance > 0) view.zoom(distance / held.distance, ...view.inPane(middle));
        moved = Infinity;
      } else if (fingers.size === 1) {
        moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
        if (moved > 4) by(event)(now[0] - before[0], now[1] - before[1]);
      }
    },
    pointerup: (event) => fingers.delete(event.pointerId) && moved <= 4 && pick(...view.inPane(place(event))),
    pointercancel: (event) => fingers.delete(event.pointerId),
    pointerleave: leave,
    dblclick: (event) => view.zoom(2, ...view.inPane(place(event))),
    wheel(event) {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 20 : 1;
      view.zoom(Math.exp(-Math.max(-300, Math.min(300, event.deltaY * lines)) * 0.002), ...view.inPane(place(event)));
    },
    keydown(event) {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key](event);
    },
  };
  for (const [name, handle] of Object.entries(handlers)) canvas.addEventListener(name, handle, { passive: false });
}

// The whole field in the sidebar, a pixel for each cell, with a frame around what is seen, which a pointer moves.
function startOverview() {
  $("overview").hidden = !isField;
  const show = ({ clientX, clientY }) => {
    const { left, top, width, height } = $("overview").firstElementChild.getBoundingClientRect();
    const [[west, east], [south, north]] = fieldBox();
    const center = [west + ((clientX - left) / width) * (east - west), north - ((clientY - top) / height) * (north - south)];
    view.lookAt(wholeCells(center), view.zoomed());
  };
  $("overview").addEventListener("pointerdown", (event) => {
    if (event.isTrusted) $("overview").setPointerCapture(event.pointerId);
    show(event);
  });
  $("overview").addEventListener("pointermove", (event) => event.buttons && show(event));
}

// The rims of the outermost cells, across and up.
const fieldBox = () => [x, y].map(extent).map(([low, high]) => [low - inLattice / 2, high + inLattice / 2]);

// The place that is in the middle when no cell at the left and the upper rim is cut and all of the pane shows the field.
function wholeCells(center) {
  const { width, height } = paneBoxes()[0];
  const [[west, east], [south, north]] = fieldBox();
  const [half_width, half_height] = [width, height].map((side) => side / 2 / view.metre);
  const snapped = (far, side, half) => {
    const most = Math.floor(Math.max(side - 2 * half, 0) / inLattice + 1e-6);
    return Math.min(Math.max(Math.round((far - half) / inLattice), 0), most) * inLattice + half;
  };
  return [west + snapped(center[0] - west, east - west, half_width), north - snapped(north - center[1], north - south, half_height)];
}

function drawOverview() {
  const [[west, east], [south, north]] = fieldBox();
  const [columns, rows] = [east - west, north - south].map((side) => Math.round(side / inLattice));
  const map = Object.assign($("overview").firstElementChild, { width: columns, height: rows });
  const pen = map.getContext("2d");
  for (let node = 0; node < x.length; node++) {
    if (!passes(node)) continue;
    pen.fillStyle = colorOf(node);
    pen.fillRect(Math.round((x[node] - west) / inLattice - 0.5), Math.round((north - y[node]) / inLattice - 0.5), 1, 1);
  }
}

function frameOverview() {
  const { width, height } = paneBoxes()[0];
  const [[west, east], [south, north]] = fieldBox();
  const [left, top] = view.toMap(0, 0);
  const [right, bottom] = view.toMap(width, height);
  const percent = (share) => `${100 * Math.min(Math.max(share, 0), 1)}%`;
  const frame = $("overview").lastElementChild.style;
  frame.left = percent((left - west) / (east - west));
  frame.right = percent((east - right) / (east - west));
  frame.top = percent((north - top) / (north - south));
  frame.bottom = percent((bottom - south) / (north - south));
}

// Turn places in space: x and y become what is seen, in a mild perspective; returns how near each is, −1 to 1.
function makeTurning(x, y, z, reach, onTurn) {
  const [across, deep, up, depth] = [x.slice(), y.slice(), z, new Float32Array(x.length)];
  const sides = [across, deep, up].map(extent);
  // From 22° above, as in the preview, and from the side that hides least: walls are behind the room.
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const [sumX, sumY] = [x, y].map(sum);
  const behind = (at) => Math.sin(at) * sumX + Math.cos(at) * sumY;
  const quarters = [0, 1, 2, 3].map((turns) => -0.56 + (turns * Math.PI) / 2);
  let angle = quarters.reduce((best, at) => (behind(at) > behind(best) ? at : best));
  let tilt = 0.38;
  // Where a place in space is seen, and how far it is.
  const project = (across, deep, up) => {
    const [sa, ca, st, ct] = [Math.sin(angle), Math.cos(angle), Math.sin(tilt), Math.cos(tilt)];
    const back = sa * across + ca * deep;
    const far = (ct * back - st * up) / reach;
    const near = 1 / (1 + 0.1 * far);
    return [near * (ca * across - sa * deep), near * (ct * up + st * back), far];
  };
  const turn = (dx, dy) => {
    angle += dx * 0.008;
    tilt = Math.min(Math.max(tilt + dy * 0.008, -Math.PI / 2), Math.PI / 2);
    for (let i = 0; i < x.length; i++) [x[i], y[i], depth[i]] = project(across[i], deep[i], up[i]);
    onTurn(depth);
  };
  const angles = () => [angle, tilt];
  const turnTo = (to_angle, to_tilt) => turn((to_angle - angle) / 0.008, (to_tilt - tilt) / 0.008);
  return { turn, depth, angles, turnTo, project, sides };
}
