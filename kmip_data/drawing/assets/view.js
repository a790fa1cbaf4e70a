// The part of the graph that is seen, and how pointer, wheel, fingers and keys change it.

function makeView(canvas, [west, south, east, north], onChange) {
  const view = { center: [0, 0], metre: 1, moved: false }; // middle in metres, CSS pixels a metre
  const middle = () => [canvas.clientWidth / 2, canvas.clientHeight / 2];
  const whole = () => {
    const [width, height] = middle().map((half) => 2 * half - 60); // a margin of 30 on each side
    return Math.max(Math.min(width / Math.max(east - west, 1), height / Math.max(north - south, 1)), 1e-6);
  };
  const move = (center, metre, moved = true) => {
    Object.assign(view, { center, metre, moved });
    onChange();
  };

  view.zoomed = () => view.metre / whole();
  view.toScreen = (x, y) => {
    const [across, down] = middle();
    return [across + (x - view.center[0]) * view.metre, down - (y - view.center[1]) * view.metre];
  };
  view.toMap = (px, py) => {
    const [across, down] = middle();
    return [view.center[0] + (px - across) / view.metre, view.center[1] - (py - down) / view.metre];
  };
  view.fit = () => move([(west + east) / 2, (south + north) / 2], whole(), false);
  view.pan = (dx, dy) => move([view.center[0] - dx / view.metre, view.center[1] + dy / view.metre], view.metre);
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
  const keys = {
    ArrowLeft: () => view.pan(step, 0),
    ArrowRight: () => view.pan(-step, 0),
    ArrowUp: () => view.pan(0, step),
    ArrowDown: () => view.pan(0, -step),
    "+": () => view.zoom(1.5),
    "=": () => view.zoom(1.5),
    "-": () => view.zoom(1 / 1.5),
    0: () => view.fit(),
    Enter: () => pick(canvas.clientWidth / 2, canvas.clientHeight / 2, Infinity),
    Escape: () => pick(NaN, NaN),
  };
  const handlers = {
    pointerdown(event) {
      if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
      if (!fingers.size) moved = 0;
      fingers.set(event.pointerId, place(event));
    },
    pointermove(event) {
      const [before, now] = [fingers.get(event.pointerId), place(event)];
      if (!before) return hover(...now);
      const held = fingers.size === 2 && spread();
      fingers.set(event.pointerId, now);
      if (held) {
        const { distance, middle } = spread();
        view.pan(middle[0] - held.middle[0], middle[1] - held.middle[1]);
        if (held.distance > 0) view.zoom(distance / held.distance, ...middle);
        moved = Infinity;
      } else if (fingers.size === 1) {
        moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
        if (moved > 4) view.pan(now[0] - before[0], now[1] - before[1]);
      }
    },
    pointerup: (event) => fingers.delete(event.pointerId) && moved <= 4 && pick(...place(event)),
    pointercancel: (event) => fingers.delete(event.pointerId),
    pointerleave: leave,
    dblclick: (event) => view.zoom(2, ...place(event)),
    wheel(event) {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 20 : 1;
      view.zoom(Math.exp(-Math.max(-300, Math.min(300, event.deltaY * lines)) * 0.002), ...place(event));
    },
    keydown(event) {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    },
  };
  for (const [name, handle] of Object.entries(handlers)) canvas.addEventListener(name, handle, { passive: false });
}
