// WebGL: a picture, edges as bands over it, and nodes as round points on them.
// Everything lies in textures that the vertex shader reads by its number: nothing is stored twice.

const NONE = -1; // colour position of a node without a value: drawn grey
const ROW = 2048; // nodes, or edges, in a row of a texture
const BANDS = 8000; // edges in sight up to which they are bands; more are lines of one pixel, a fifth of the work
const [EDGES, NODES, ARROWS, PICTURE, AREA] = [0, 1, 2, 3, 4];
const FOG = [0.36, 0.12]; // of half the depth, the share of the ground's colour; less where paleness means something
const INSIDE_CLASS = "1.8"; // strength of edges inside a class where others are pale
const DEEP = 0.9; // farthest depth: edges, which are behind their nodes, still lie before 1
const STEPS = 16; // straight pieces of a curve between two layers, or around nodes
// Lines of a bond by its kind (single, double, triple, aromatic), each by its lane: 0 in the middle, 1 and 2 left
// and right of it, 3 and 4 farther, 5 dashed on the left, 6 dashed in the middle; 7 has an arrow at its end, 8 at its start, 9 at both.
const LANES = [[0], [1, 2], [0, 3, 4], [0, 5]];
const [AROMATIC, DASHED, DETOUR, ONE_WAY, BACKWARD, BOTH_WAYS] = [3, 5, 6, 7, 8, 9];

// The lines that are drawn for edges with `kinds`: node numbers, with the lane in the upper bits of the second.
// Aromatic bonds are turned so that their dashed line, on the left, is inside the ring.
function linesOf(pairs, kinds, x, y) {
  const ends = Array.from(kinds, (kind, edge) => [pairs[2 * edge], pairs[2 * edge + 1], kind]);
  const neighbours = new Map(); // of an atom, on aromatic bonds: those of both ends lie around the middle of the ring
  for (const [a, b, kind] of ends.filter(([, , kind]) => kind === AROMATIC)) {
    for (const [one, other] of [[a, b], [b, a]]) neighbours.set(one, [...(neighbours.get(one) || []), other]);
  }
  const drawn = [];
  for (let [a, b, kind] of ends) {
    if (kind === AROMATIC) {
      const around = [...neighbours.get(a), ...neighbours.get(b)];
      const [across, up] = [x, y].map((at) => around.reduce((sum, node) => sum + at[node], 0) / around.length);
      if ((x[b] - x[a]) * (up - y[a]) - (y[b] - y[a]) * (across - x[a]) < 0) [a, b] = [b, a];
    }
    for (const lane of LANES[kind] || LANES[0]) drawn.push(a, (b | (lane << 28)) >>> 0);
  }
  return Uint32Array.from(drawn);
}

const VERTEX = `#version 300 es
  precision highp float;
  precision highp int;
  uniform sampler2D places, looks, palette;
  uniform highp usampler2D pairs;
  uniform vec2 scale, offset, size;
  uniform float diameter, band, deep, tint, strength, bonded, count, classed, fog;
  uniform int mode, corners, areaStart;
  uniform bool weighted, pictured, formula;
  uniform vec4 area, faint, ground, missing, letters, box; // left, bottom, width and height of the picture
  out vec4 paint;
  out vec2 below; // place in the picture
  out float across, dash, solid, wide;
  out vec4 beyond; // colour of the second half of a bond
  out float reached; // share of an edge that lies before
  ivec2 cell(int i) { return ivec2(i % ${ROW}, i / ${ROW}); }
  vec4 colorOf(float at) { return at < 0.0 ? missing : textureLod(palette, vec2(at, 0.5), 0.0); }
  vec4 faded(vec4 color, float z) { return vec4(mix(color.rgb, ground.rgb, fog * (1.0 + z)), color.a); }
  // A node's number has 28 bits; above them stand how wide an edge is, and the side that a line of several lies on.
  uint nodeOf(uint end) { return end & 0x0fffffffu; }
  uint other(uvec4 ends) { return nodeOf(ends.y); }
  // Streets have the colours of their ends; an edge inside a class has its colour, pale, one between two classes none.
  vec4 edgeColor(vec4 own, vec4 one, vec4 other) {
    float share = min(one.y, other.y);
    if (classed == 0.0 || one.x < 0.0 || abs(one.x - other.x) > 1e-5) return mix(faint, colorOf(own.x), tint * share);
    vec4 inside = vec4(mix(ground, colorOf(own.x), classed).rgb, ${INSIDE_CLASS}); // stronger, so that communities are seen
    return mix(faint, inside, share);
  }
  // In a formula an atom is a corner, before which only the inner line of a ring ends.
  float radius(vec4 at, vec4 look) { return formula ? 1.5 * band : 0.5 * diameter * look.z * mix(1.0, 1.0 - 0.45 * at.z, deep); }
  void line(int number, int corner) { // as little as can be: there are many
    uvec4 ends = texelFetch(pairs, cell(number), 0);
    ivec2 end = cell(int(corner == 0 ? nodeOf(ends.x) : other(ends))), second = cell(int(corner == 0 ? other(ends) : nodeOf(ends.x)));
    vec4 at = texelFetch(places, end, 0), look = texelFetch(looks, end, 0);
    gl_Position = vec4(at.xy * scale + offset, at.z + 0.04 * deep, 1.0);
    paint = faded(tint + classed == 0.0 ? faint : edgeColor(look, look, texelFetch(looks, second, 0)), at.z);
    paint.a = min(paint.a * strength, 1.0);
  }
  void edge(int number, int corner) {
    uvec4 ends = texelFetch(pairs, cell(number), 0);
    ivec2 first = cell(int(nodeOf(ends.x))), second = cell(int(other(ends)));
    vec4 a = texelFetch(places, first, 0), b = texelFetch(places, second, 0);
    vec4 la = texelFetch(looks, first, 0), lb = texelFetch(looks, second, 0);
    wide = weighted ? band * (0.75 + float(ends.x >> 28) / 11.0) : band;
    int lane = int(ends.y >> 28);
    bool far = corner == 2 || corner == 3 || corner == 5;
    float side = corner == 1 || corner > 3 ? 1.0 : -1.0;
    vec2 along = (b.xy - a.xy) * scale * size;
    vec2 normal = along == vec2(0.0) ? vec2(0.0) : normalize(vec2(-along.y, along.x));
    vec4 end = far ? b : a;
    across = side * (0.5 * wide + 1.0);
    float beside = (formula ? 1.4 : 1.0) * band * (lane == 1 ? 0.9 : lane == 2 ? -0.9 : lane == 4 ? -1.8 : lane == 3 || lane == ${DASHED} ? 1.8 : 0.0);
    float whole = length(along) / 2.0;
    vec2 ahead = along / max(2.0 * whole, 1e-6);
    vec2 back = lane < 3 || lane >= ${DETOUR} ? vec2(0.0) : ahead * (far ? -radius(b, lb) : radius(a, la)); // lines at the side are shorter
    if (lane == ${DASHED} || lane == ${DETOUR}) dash = far ? max(whole - radius(a, la) - radius(b, lb), 0.0) : 0.0;
    gl_Position = vec4(end.xy * scale + offset + 2.0 * (normal * (across + beside) + back) / size, end.z + 0.04 * deep, 1.0); // behind nodes
    paint = faded(edgeColor(far && !formula ? lb : la, la, lb), end.z);
    beyond = edgeColor(lb, la, lb);
    reached = float(far);
    paint = mix(paint, letters, bonded * max(la.w, lb.w)); // bonds of the held atom
    paint.a = min(paint.a * strength, 1.0);
  }
  void arrow(int number, int corner, bool back) { // its tip at the rim of the target, or back at the source
    uvec4 ends = texelFetch(pairs, cell(number), 0);
    int lane = int(ends.y >> 28);
    uint from = back ? other(ends) : nodeOf(ends.x), to = back ? nodeOf(ends.x) : other(ends);
    ivec2 first = cell(int(from)), second = cell(int(to));
    vec4 a = texelFetch(places, first, 0), b = texelFetch(places, second, 0);
    vec4 la = texelFetch(looks, first, 0), lb = texelFetch(looks, second, 0);
    float rim = radius(b, lb);
    vec2 along = (b.xy - a.xy) * scale * size / 2.0;
    float whole = length(along), high = 3.0 + min(0.5 * diameter, 4.0 * band);
    bool bent = float(from) >= count; // its last piece is one of several
    float free = whole * (bent ? ${STEPS}.0 : 1.0) - rim - 0.5 * diameter;
    // Heads are small on a short edge, and small and pale where many end: around a hub they would be a dark ring.
    high = min(high, max((lane == ${BOTH_WAYS} ? 0.42 : 0.5) * free, 2.5));
    float room = 8.0 * (rim + high) / high / max(b.w, 1.0);
    high *= clamp(room, 0.4, 1.0);
    vec2 ahead = along / max(whole, 1e-6);
    vec2 from_target = -ahead * (rim + (corner > 0 ? high : 0.0)) + vec2(-ahead.y, ahead.x) * 0.4 * high * float(corner == 1 ? 1 : corner == 2 ? -1 : 0);
    bool none = lane != ${BOTH_WAYS} && lane != (back ? ${BACKWARD} : ${ONE_WAY});
    gl_Position = none ? vec4(2.0, 2.0, 2.0, 1.0) : vec4(b.xy * scale + offset + 2.0 * from_target / size, b.z, 1.0);
    paint = faded(edgeColor(lb, la, lb), b.z);
    paint.a = min(paint.a * strength, 1.0) * clamp(2.0 * room, 0.4, 1.0);
  }
  void node(int number) {
    vec4 at = texelFetch(places, cell(number), 0), look = texelFetch(looks, cell(number), 0);
    paint = faded(colorOf(look.x), at.z);
    paint.a = step(0.02, look.y);
    solid = look.y;
    if (tint > 0.0) { // on the streets that meet there, not on the ground
      paint.rgb = mix(mix(faint.rgb, paint.rgb, tint * look.y), paint.rgb, look.y);
      solid = 1.0;
    }
    float z = look.x < 0.0 || look.y < 0.5 ? mix(at.z, 1.0, 0.9) : at.z; // what is grey or faint hides nothing
    if (deep == 0.0) z -= 0.5 * look.w; // what stands out is on top
    gl_Position = paint.a < 0.02 ? vec4(2.0, 2.0, 2.0, 1.0) : vec4(at.xy * scale + offset, z, 1.0);
    gl_PointSize = formula ? band : 2.0 * radius(at, look);
    across = gl_PointSize;
  }
  void main() {
    dash = -1.0;
    wide = band;
    if (mode == ${EDGES} && corners == 2) line(gl_VertexID / 2, gl_VertexID % 2);
    else if (mode == ${EDGES}) edge(gl_VertexID / 6, gl_VertexID % 6);
    else if (mode == ${ARROWS}) arrow(gl_VertexID / 6, gl_VertexID % 3, gl_VertexID % 6 > 2);
    else if (mode == ${PICTURE}) gl_Position = vec4((box.xy + vec2(gl_VertexID & 1, gl_VertexID >> 1) * box.zw) * scale + offset, 0.0, 1.0);
    else if (mode == ${AREA}) {
      gl_Position = vec4(texelFetch(places, cell(areaStart + gl_VertexID), 0).xy * scale + offset, 0.99, 1.0);
      paint = area;
    } else node(gl_VertexID);
    below = ((gl_Position.xy - offset) / scale - box.xy) / box.zw;
  }`;
const FRAGMENT = `#version 300 es
  precision highp int;
  precision highp float;
  uniform float band, deep;
  uniform int mode, corners;
  uniform bool pictured, filled, formula;
  uniform sampler2D picture;
  uniform vec4 ground, letters; // of pale nodes a rim in the direction of the letters
  in vec4 paint;
  in vec2 below;
  in float across, dash, solid, wide, reached;
  in vec4 beyond;
  out vec4 color;
  void main() {
    color = formula && mode == ${EDGES} && reached > 0.5 ? beyond : paint;
    vec4 cell = pictured ? texture(picture, vec2(below.x, 1.0 - below.y)) : vec4(0.0);
    vec3 base = mix(ground.rgb, cell.rgb, cell.a);
    if (mode == ${PICTURE}) color = vec4(base, 1.0);
    else if (pictured && mode != ${NODES}) color.rgb = vec3(dot(base, vec3(0.3, 0.59, 0.11)) < 0.65); // white on what is dark
    if (mode >= ${ARROWS}) return;
    if (mode == ${EDGES}) {
      if (corners > 2) color.a *= clamp(0.5 * wide + 0.5 - abs(across), 0.0, 1.0);
      if (dash >= 0.0 && mod(dash, 3.5 * band) > 2.0 * band) color.a = 0.0;
      return;
    }
    if (filled && mode == ${NODES}) {
      color.rgb = mix(base, color.rgb, solid);
      return;
    }
    float radius = length(gl_PointCoord * 2.0 - 1.0);
    float soft = across < 3.0 ? 1.0 : 1.0 - smoothstep(1.0 - 3.0 / across, 1.0, radius);
    bool isPale = distance(color.rgb, ground.rgb) < 0.4; // a rim of the ground would hide it
    vec3 edge = !isPale ? ground.rgb : mix(color.rgb, letters.rgb, 0.65);
    if (deep > 0.0) { // a ball in light from above
      vec3 normal = vec3(gl_PointCoord * 2.0 - 1.0, sqrt(max(1.0 - radius * radius, 0.0)));
      color.rgb *= 0.6 + 0.4 * max(dot(normal, vec3(-0.4, -0.5, 0.77)), 0.0);
    } else if (across > 5.0 && !formula) color.rgb = mix(color.rgb, edge, smoothstep(0.7 - 1.5 / across, 0.7 + 1.5 / across, radius));
    color.rgb = mix(base, color.rgb, solid); // what is dimmed hides edges
    color.a *= soft;
    if (color.a < 0.02) discard;
  }`;

// `count` nodes are drawn, and behind them are points that edges pass and corners of triangles of `areas`: `points` in all.
function makeDrawing(canvas, { areas, count, points, pairs, deep, arrows }) {
  // Smooth lines, unless there are so many of them that a machine without a GPU would notice.
  const gl = canvas.getContext("webgl2", { antialias: count < 30000, alpha: false });
  if (!gl) throw new Error("This browser has no WebGL 2, which the map needs; kmip-data preview draws a picture.");
  const program = compiled(gl);
  gl.useProgram(program);
  const at = (name) => gl.getUniformLocation(program, name);
  const edges = pairs.length / 2;
  const rows = (number) => Math.max(1, Math.ceil(number / ROW));
  const units = ["places", "looks", "pairs", "palette", "picture"];
  units.forEach((name, unit) => gl.uniform1i(at(name), unit));
  const textures = Object.fromEntries(units.map((name) => [name, gl.createTexture()]));
  textures.others = gl.createTexture(); // how nodes look on the second pane

  // Fill a texture; `kind` are WebGL's words for what is in it.
  function fill(name, values, width, height, kind, filter = gl.NEAREST) {
    gl.activeTexture(gl.TEXTURE0 + units.indexOf(name === "others" ? "looks" : name));
    gl.bindTexture(gl.TEXTURE_2D, textures[name]);
    gl.texImage2D(gl.TEXTURE_2D, 0, kind[0], width, height, 0, kind[1], kind[2], values);
    for (const side of ["S", "T"]) gl.texParameteri(gl.TEXTURE_2D, gl[`TEXTURE_WRAP_${side}`], gl.CLAMP_TO_EDGE);
    for (const size of ["MIN", "MAG"]) gl.texParameteri(gl.TEXTURE_2D, gl[`TEXTURE_${size}_FILTER`], filter);
  }
  const floats = [gl.RGBA32F, gl.RGBA, gl.FLOAT];
  const padded = new Uint32Array(2 * ROW * rows(edges));
  padded.set(pairs);
  fill("pairs", padded, ROW, rows(edges), [gl.RG32UI, gl.RG_INTEGER, gl.UNSIGNED_INT]);
  const places = new Float32Array(4 * ROW * rows(points));
  const heads = new Uint32Array(points); // that end in each node
  for (let e = 1; e < pairs.length; e += 2) {
    const lane = pairs[e] >>> 28;
    if ([ONE_WAY, BOTH_WAYS].includes(lane)) heads[pairs[e] & 0x0fffffff]++;
    if ([BACKWARD, BOTH_WAYS].includes(lane)) heads[pairs[e - 1] & 0x0fffffff]++;
  }
  gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  gl.enable(gl.DEPTH_TEST);
  gl.depthFunc(gl.LEQUAL);

  // Take places, and of what is in space depths, which become −DEEP (near) to DEEP.
  function move(x, y, depth) {
    const [near, far] = depth ? extent(depth) : [0, 0];
    const scale = (2 * DEEP) / (far - near || 1);
    for (let i = 0; i < points; i++) places.set([x[i], y[i], depth ? (depth[i] - near) * scale - DEEP : 0, heads[i]], 4 * i);
    fill("places", places, ROW, rows(points), floats);
  }

  // Hand the shader the edges whose box touches a pane about `center`, so that zooming into a large graph makes
  // it light; a small one and one that turns are handed over once. Return how many they are.
  let shown = edges;
  function inSight([across, up], wide, high) {
    if (deep || edges <= BANDS) return edges;
    const outside = (a, b, middle, reach) => Math.max(a, b) < middle - reach || Math.min(a, b) > middle + reach;
    const seen = new Uint32Array(padded.length);
    let size = 0;
    for (let e = 0; e < pairs.length; e += 2) {
      const [a, b] = [4 * (pairs[e] & 0x0fffffff), 4 * (pairs[e + 1] & 0x0fffffff)];
      if (outside(places[a], places[b], across, wide) || outside(places[a + 1], places[b + 1], up, high)) continue;
      seen[size++] = pairs[e];
      seen[size++] = pairs[e + 1];
    }
    const number = size / 2;
    const all = number === edges && shown === edges;
    if (!all) fill("pairs", seen.subarray(0, 2 * ROW * rows(number)), ROW, rows(number), [gl.RG32UI, gl.RG_INTEGER, gl.UNSIGNED_INT]);
    shown = number;
    return number;
  }

  // Take RGBA bytes, to which colour positions in [0, 1] point.
  function paint(bytes, smooth) {
    fill("palette", bytes, bytes.length / 4, 1, [gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE], smooth ? gl.LINEAR : gl.NEAREST);
  }

  // Take the picture below the nodes and its box.
  let box = [0, 0, 1, 1];
  function show({ left, bottom, right, top }, source) {
    box = [left, bottom, right - left, top - bottom];
    fill("picture", source, source.width, source.height, [gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE], gl.LINEAR);
  }

  // Take colour position, strength, size and height of each node: (N, 4), in an array of `looksOf`.
  const look = (pane, values) => fill(pane ? "others" : "looks", values, ROW, rows(points), floats);
  const looksOf = () => new Float32Array(4 * ROW * rows(points));

  // Draw into `panes`, in device pixels; sizes, too, in device pixels, `metre` those of a metre.
  function draw({ panes, center, metre, diameter, band, tint, classed, strength, lines, nodes, dark, bonds, pictured, weighted, filled, formula, levels, quiet }) {
    const [ground, line, pale, letters, missing] = [ink("ground"), quiet, ink("pale"), ink("ink"), ink("missing")].map((color) => rgba(color).map((byte) => byte / 255));
    const faint = line.map((value, i) => value + dark * (pale[i] - value));
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.disable(gl.SCISSOR_TEST);
    gl.clearColor(...ground);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.enable(gl.SCISSOR_TEST);
    const numbers = { count, diameter, band, tint, classed, strength, bonded: Number(bonds && !formula), deep: Number(deep) };
    numbers.fog = deep ? FOG[Number(levels)] : 0;
    for (const [name, value] of Object.entries(numbers)) gl.uniform1f(at(name), value);
    for (const [name, value] of Object.entries({ ground, faint, letters, missing, box })) gl.uniform4f(at(name), ...value);
    const seen = lines ? inSight(center, panes[0].width / metre / 2, panes[0].height / metre / 2) : 0;
    const corners = seen > BANDS ? 2 : 6;
    gl.uniform1i(at("corners"), corners);
    gl.uniform1i(at("pictured"), pictured);
    gl.uniform1i(at("weighted"), weighted);
    gl.uniform1i(at("filled"), filled);
    gl.uniform1i(at("formula"), formula);
    panes.forEach(({ left, bottom, width, height }, pane) => {
      const scale = [(2 * metre) / width, (2 * metre) / height];
      gl.viewport(left, bottom, width, height);
      gl.scissor(left, bottom, width, height);
      gl.uniform2f(at("scale"), ...scale);
      gl.uniform2f(at("offset"), -center[0] * scale[0], -center[1] * scale[1]);
      gl.uniform2f(at("size"), width, height);
      gl.activeTexture(gl.TEXTURE1);
      gl.bindTexture(gl.TEXTURE_2D, textures[pane ? "others" : "looks"]);
      const all = [
        [PICTURE, gl.TRIANGLE_STRIP, pictured ? 4 : 0],
        ...areas.map(({ kind, first, count }) => [AREA, gl.TRIANGLES, count, kind, first]),
        [EDGES, corners > 2 ? gl.TRIANGLES : gl.LINES, seen * corners],
        [ARROWS, gl.TRIANGLES, arrows && !pictured && corners > 2 ? 6 * seen : 0],
        [NODES, gl.POINTS, nodes ? count : 0],
      ];
      for (const [mode, kind, number, color, start] of all) {
        gl.uniform1i(at("mode"), mode);
        if (color) {
          gl.uniform1i(at("areaStart"), start);
          gl.uniform4f(at("area"), ...rgba(ink(color)).map((byte) => byte / 255));
        }
        gl.depthMask(mode === NODES); // edges hide no node
        // In space, a half transparent rim would hide what is behind it: samples are covered or not.
        const isBall = deep && mode === NODES;
        gl[isBall ? "disable" : "enable"](gl.BLEND);
        gl[isBall ? "enable" : "disable"](gl.SAMPLE_ALPHA_TO_COVERAGE);
        if (number) gl.drawArrays(kind, 0, number);
      }
    });
  }

  return { draw, move, show, paint, look, looksOf };
}

function compiled(gl) {
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) {
    throw new Error(`The map cannot be drawn: ${gl.getProgramInfoLog(program)}`);
  }
  return program;
}
