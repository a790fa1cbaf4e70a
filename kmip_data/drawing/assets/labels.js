// The nodes' own ids next to them, where there is room: first those of the nodes with most neighbours.

const LETTERS = 20; // of an id at most
const LABEL_ROOM = 24; // CSS pixels right of the last node
const CELL = 6; // CSS pixels: what is taken is remembered in squares
const MANY_IN_SIGHT = 2000; // nodes of which no label would have room
let ranked = []; // nodes by number of neighbours

const degreeOf = (node) => graph.first[node + 1] - graph.first[node];

function startLabels() {
  if (header.ids) ranked = Array.from(x.keys()).sort((a, b) => degreeOf(b) - degreeOf(a));
}

function drawLabels(pen) {
  if (!ranked.length || state.layer.levels) return;
  const { width, height } = paneBoxes()[0];
  const isInSight = ([across, down]) => across > 0 && across < width && down > 0 && down < height;
  const seen = ranked.filter((node) => passes(node) && isInSight(placeOf(node)));
  if (seen.length > MANY_IN_SIGHT) return;

  // Squares that nodes and labels cover.
  const taken = new Set();
  const squares = (left, top, right, bottom) => {
    const covered = [];
    for (let across = Math.floor(left / CELL); across <= right / CELL; across++) {
      for (let down = Math.floor(top / CELL); down <= bottom / CELL; down++) covered.push(`${across} ${down}`);
    }
    return covered;
  };
  const take = (covered) => covered.forEach((square) => taken.add(square));
  for (const { offsetLeft, offsetTop, offsetWidth, offsetHeight } of [$("buttons"), $("credit")]) {
    take(squares(offsetLeft, offsetTop, offsetLeft + offsetWidth, offsetTop + offsetHeight));
  }
  const radiusOf = (node) => (sizeOf(node) * state.diameter) / 2;
  for (const node of seen) {
    const [across, down] = placeOf(node);
    const radius = radiusOf(node);
    take(squares(across - radius, down - radius, across + radius, down + radius));
  }

  const size = 12;
  const around = state.node < 0 ? null : new Set([state.node, ...state.ball.keys()]);
  Object.assign(pen, { font: `${size}px ${ink("font")}, sans-serif`, textAlign: "left", textBaseline: "middle", lineJoin: "round", lineWidth: 3 });
  Object.assign(pen, { strokeStyle: ink("ground"), fillStyle: ink("ink"), globalAlpha: 1 });
  for (const node of seen) {
    if (around && !around.has(node)) continue;
    const id = header.ids[node];
    const text = id.length > LETTERS ? `${id.slice(0, LETTERS - 1)}…` : id;
    const long = pen.measureText(text).width;
    const [across, down] = placeOf(node);
    const beside = radiusOf(node) + 5 + (node === state.node ? 6 : 0);
    const places = [
      [across + beside, down],
      [across - beside - long, down],
      [across - long / 2, down - beside - size / 2],
      [across - long / 2, down + beside + size / 2],
    ];
    const free = places.find(([left, middle]) => {
      const covered = squares(left, middle - size / 2, left + long, middle + size / 2);
      if (left < 0 || left + long > width || covered.some((square) => taken.has(square))) return false;
      take(covered);
      return true;
    });
    if (!free) continue;
    pen.strokeText(text, ...free); // a halo parts it from edges
    pen.fillText(text, ...free);
  }
}
