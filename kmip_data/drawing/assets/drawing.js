// WebGL: streets as lines between intersections, and intersections as round points.

const NONE = -1; // colour position of an intersection without a value: drawn grey

const STREET_VERTEX = `#version 300 es
  in vec2 place;
  uniform vec2 scale, offset;
  void main() { gl_Position = vec4(place * scale + offset, 0.0, 1.0); }`;
const STREET_FRAGMENT = `#version 300 es
  precision mediump float;
  uniform vec4 faint;
  out vec4 color;
  void main() { color = faint; }`;
const POINT_VERTEX = `#version 300 es
  in vec2 place;
  in float value;
  uniform vec2 scale, offset;
  uniform float diameter;
  out float at;
  void main() {
    gl_Position = vec4(place * scale + offset, 0.0, 1.0);
    gl_PointSize = diameter;
    at = value;
  }`;
const POINT_FRAGMENT = `#version 300 es
  precision highp float;
  uniform sampler2D palette;
  uniform float diameter;
  in float at;
  out vec4 color;
  void main() {
    vec4 found = at < 0.0 ? vec4(0.8, 0.8, 0.8, 1.0) : texture(palette, vec2(at, 0.5));
    float radius = length(gl_PointCoord * 2.0 - 1.0);
    float edge = diameter < 3.0 ? 1.0 : 1.0 - smoothstep(1.0 - 3.0 / diameter, 1.0, radius);
    if (found.a * edge < 0.02) discard;
    color = vec4(found.rgb, found.a * edge);
  }`;

function makeDrawing(canvas, { x, y, streets }) {
  const count = x.length;
  const places = new Float32Array(2 * count);
  let gl, street, point, valueBuffer, palette, placeBuffers;
  let order = null; // points in the order in which they are drawn, where that is not their own
  let colors = { values: new Float32Array(count).fill(NONE), palette: new Uint8Array(4), smooth: false };

  function place() {
    for (let i = 0; i < count; i++) [places[2 * i], places[2 * i + 1]] = [x[i], y[i]];
  }

  function start() {
    // Smooth lines, unless there are so many of them that a machine without a GPU would notice.
    gl = canvas.getContext("webgl2", { antialias: count < 30000, alpha: false });
    if (!gl) throw new Error("This browser has no WebGL 2: the map cannot be drawn.");
    street = program(gl, STREET_VERTEX, STREET_FRAGMENT);
    placeBuffers = [attribute(gl, street, "place", places, 2)];
    // Drawn by index: quads of their own, one instance a street, take thirty times as long without a GPU.
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, streets, gl.STATIC_DRAW);
    point = program(gl, POINT_VERTEX, POINT_FRAGMENT);
    placeBuffers.push(attribute(gl, point, "place", places, 2));
    if (order) orderPoints();
    valueBuffer = attribute(gl, point, "value", colors.values, 1);
    palette = gl.createTexture();
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    paint(colors);
  }

  function orderPoints() {
    gl.bindVertexArray(point.array);
    gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
    gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, order, gl.DYNAMIC_DRAW);
  }

  // Take x and y as they are now, and draw the points in this order, the nearest last.
  function move(next) {
    place();
    for (const buffer of placeBuffers) {
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.bufferData(gl.ARRAY_BUFFER, places, gl.DYNAMIC_DRAW);
    }
    order = next;
    orderPoints();
  }

  // Take a colour position in [0, 1] for each intersection, and the RGBA bytes that they point into.
  function paint(next) {
    colors = next;
    gl.bindBuffer(gl.ARRAY_BUFFER, valueBuffer);
    gl.bufferData(gl.ARRAY_BUFFER, colors.values, gl.STATIC_DRAW);
    gl.bindTexture(gl.TEXTURE_2D, palette);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, colors.palette.length / 4, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, colors.palette);
    const filter = colors.smooth ? gl.LINEAR : gl.NEAREST;
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, filter);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, filter);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_S, gl.CLAMP_TO_EDGE);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_WRAP_T, gl.CLAMP_TO_EDGE);
  }

  // Draw; `metre` and `diameter` in device pixels, `center` in metres.
  function draw(center, metre, diameter) {
    const [width, height] = [canvas.width, canvas.height];
    const scale = [(2 * metre) / width, (2 * metre) / height];
    const offset = [-center[0] * scale[0], -center[1] * scale[1]];
    gl.viewport(0, 0, width, height);
    const [ground, faint] = ["ground", "line"].map((name) => rgba(ink(name)).map((byte) => byte / 255));
    gl.clearColor(...ground);
    gl.clear(gl.COLOR_BUFFER_BIT);
    for (const { id, array, at } of [street, point]) {
      gl.useProgram(id);
      gl.bindVertexArray(array);
      gl.uniform2f(at("scale"), ...scale);
      gl.uniform2f(at("offset"), ...offset);
      if (id === street.id) {
        gl.uniform4f(at("faint"), ...faint);
        gl.drawElements(gl.LINES, streets.length, gl.UNSIGNED_INT, 0);
      } else {
        gl.uniform1f(at("diameter"), diameter);
        if (order) gl.drawElements(gl.POINTS, count, gl.UNSIGNED_INT, 0);
        else gl.drawArrays(gl.POINTS, 0, count);
      }
    }
  }

  place();
  start();
  canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
  return { draw, move, paint, restart: start };
}

function program(gl, vertex, fragment) {
  const id = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(id, shader);
  }
  gl.linkProgram(id);
  if (!gl.getProgramParameter(id, gl.LINK_STATUS) && !gl.isContextLost()) {
    throw new Error(`The map cannot be drawn: ${gl.getProgramInfoLog(id)}`);
  }
  const places = {};
  const at = (name) => (places[name] ??= gl.getUniformLocation(id, name));
  return { id, at, array: gl.createVertexArray() };
}

// Put values into a buffer that the program reads as `name`, `size` numbers a vertex.
function attribute(gl, { id, array }, name, values, size) {
  const buffer = gl.createBuffer();
  const location = gl.getAttribLocation(id, name);
  gl.bindVertexArray(array);
  gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
  gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
  gl.enableVertexAttribArray(location);
  gl.vertexAttribPointer(location, size, gl.FLOAT, false, 0, 0);
  return buffer;
}
