// The part of the map that is seen, and how pointer, wheel, fingers and keys change it.

function makeView(canvas, bounds, onChange) {
  const [west, south, east, north] = bounds;
  const view = { center: [0, 0], metre: 1, moved: false }; // middle in metres, CSS pixels a metre
  const whole = () => {
    const margin = 30;
    const across = (canvas.clientWidth - 2 * margin) / Math.max(east - west, 1);
    const up = (canvas.clientHeight - 2 * margin) / Math.max(north - south, 1);
    return Math.max(Math.min(across, up), 1e-6);
  };
  const limit = (metre) => Math.min(Math.max(metre, whole() / 4), 100);

  view.fit = () => {
    view.center = [(west + east) / 2, (south + north) / 2];
    view.metre = whole();
    view.moved = false;
    onChange();
  };
  view.toScreen = (x, y) => [
    canvas.clientWidth / 2 + (x - view.center[0]) * view.metre,
    canvas.clientHeight / 2 - (y - view.center[1]) * view.metre,
  ];
  view.toMap = (px, py) => [
    view.center[0] + (px - canvas.clientWidth / 2) / view.metre,
    view.center[1] - (py - canvas.clientHeight / 2) / view.metre,
  ];
  view.pan = (dx, dy) => {
    view.center = [view.center[0] - dx / view.metre, view.center[1] + dy / view.metre];
    view.moved = true;
    onChange();
  };
  // Zoom so that what is at (px, py) stays there.
  view.zoom = (factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) => {
    const [x, y] = view.toMap(px, py);
    view.metre = limit(view.metre * factor);
    const [nx, ny] = view.toMap(px, py);
    view.center = [view.center[0] + x - nx, view.center[1] + y - ny];
    view.moved = true;
    onChange();
  };
  view.zoomed = () => view.metre / whole();
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
  canvas.addEventListener("pointerdown", (event) => {
    if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
    if (!fingers.size) moved = 0;
    fingers.set(event.pointerId, place(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    const now = place(event);
    if (!before) return hover(...now);
    const held = fingers.size === 2 ? spread() : null;
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
  });
  canvas.addEventListener("pointerup", (event) => {
    if (fingers.delete(event.pointerId) && moved <= 4) pick(...place(event));
  });
  canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => leave());
  canvas.addEventListener("dblclick", (event) => view.zoom(2, ...place(event)));
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 20 : 1;
      view.zoom(Math.exp(-Math.max(-300, Math.min(300, event.deltaY * lines)) * 0.002), ...place(event));
    },
    { passive: false },
  );
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
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
}
