// WebGL: edges as lines between nodes, and nodes as round points. One program draws both: lines have no diameter.

const NONE = -1; // colour position of a node without a value: drawn grey

const VERTEX = `#version 300 es
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
const FRAGMENT = `#version 300 es
  precision highp float;
  uniform sampler2D palette;
  uniform vec4 faint;
  uniform float diameter;
  in float at;
  out vec4 color;
  void main() {
    color = faint;
    if (diameter == 0.0) return;
    vec4 found = at < 0.0 ? vec4(0.8, 0.8, 0.8, 1.0) : texture(palette, vec2(at, 0.5));
    float radius = length(gl_PointCoord * 2.0 - 1.0);
    float edge = diameter < 3.0 ? 1.0 : 1.0 - smoothstep(1.0 - 3.0 / diameter, 1.0, radius);
    if (found.a * edge < 0.02) discard;
    color = vec4(found.rgb, found.a * edge);
  }`;

function makeDrawing(canvas, { x, y, streets }) {
  const places = new Float32Array(2 * x.length);
  // Smooth lines, unless there are so many of them that a machine without a GPU would notice.
  const gl = canvas.getContext("webgl2", { antialias: x.length < 30000, alpha: false });
  if (!gl) throw new Error("This browser has no WebGL 2: the map cannot be drawn.");
  const program = compiled(gl);
  gl.useProgram(program);
  const at = (name) => gl.getUniformLocation(program, name);
  const [placeBuffer, valueBuffer] = [["place", 2], ["value", 1]].map(([name, size]) => {
    const [buffer, location] = [gl.createBuffer(), gl.getAttribLocation(program, name)];
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.enableVertexAttribArray(location);
    gl.vertexAttribPointer(location, size, gl.FLOAT, false, 0, 0);
    return buffer;
  });
  // Drawn by index: quads of their own, one instance a street, take thirty times as long without a GPU.
  const [lines, points] = [gl.createBuffer(), gl.createBuffer()];
  put(gl.ELEMENT_ARRAY_BUFFER, lines, streets);
  gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
  move(Uint32Array.from(x.keys()));
  paint({ values: new Float32Array(x.length).fill(NONE), palette: new Uint8Array(4), smooth: false });

  function put(kind, buffer, values) {
    gl.bindBuffer(kind, buffer);
    gl.bufferData(kind, values, gl.DYNAMIC_DRAW);
  }

  // Take x and y as they are now, and draw the points in this order, the nearest last.
  function move(order) {
    for (let i = 0; i < x.length; i++) [places[2 * i], places[2 * i + 1]] = [x[i], y[i]];
    put(gl.ARRAY_BUFFER, placeBuffer, places);
    put(gl.ELEMENT_ARRAY_BUFFER, points, order);
  }

  // Take a colour position in [0, 1] for each node, and the RGBA bytes that they point into.
  function paint({ values, palette, smooth }) {
    put(gl.ARRAY_BUFFER, valueBuffer, values);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, palette.length / 4, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, palette);
    for (const side of ["WRAP_S", "WRAP_T"]) gl.texParameteri(gl.TEXTURE_2D, gl[`TEXTURE_${side}`], gl.CLAMP_TO_EDGE);
    for (const filter of ["MIN", "MAG"]) {
      gl.texParameteri(gl.TEXTURE_2D, gl[`TEXTURE_${filter}_FILTER`], smooth ? gl.LINEAR : gl.NEAREST);
    }
  }

  // Draw; `metre` and `diameter` in device pixels, `center` in metres.
  function draw(center, metre, diameter) {
    const [width, height] = [canvas.width, canvas.height];
    const scale = [(2 * metre) / width, (2 * metre) / height];
    const [ground, faint] = ["ground", "line"].map((name) => rgba(ink(name)).map((byte) => byte / 255));
    gl.viewport(0, 0, width, height);
    gl.clearColor(...ground);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.uniform2f(at("scale"), ...scale);
    gl.uniform2f(at("offset"), -center[0] * scale[0], -center[1] * scale[1]);
    gl.uniform4f(at("faint"), ...faint);
    for (const [kind, buffer, size, count] of [
      [gl.LINES, lines, 0, streets.length],
      [gl.POINTS, points, diameter, x.length],
    ]) {
      gl.uniform1f(at("diameter"), size);
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, buffer);
      gl.drawElements(kind, count, gl.UNSIGNED_INT, 0);
    }
  }

  return { draw, move, paint };
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
