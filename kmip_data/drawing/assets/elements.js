// Pieces that pages are made of. Texts are set as text, never as HTML.

const $ = (id) => document.getElementById(id);
// Colours are those of the style sheet, as the reader's light or dark mode has them.
const DARK = matchMedia("(prefers-color-scheme: dark)");
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const HUES = 24; // of the palette; the first seven people tell apart whatever their sight
const hue = (i) => `var(--hue-${i % HUES})`; // for style sheets
const hueNow = (i) => ink(`hue-${i % HUES}`); // for canvases
// The colours of a layer or scale are listed for light ground and, where they differ, for dark ground.
const onGround = (colors) => colors[DARK.matches ? colors.length - 1 : 0];

// Four bytes of #rrggbb or #rrggbbaa.
const rgba = (color) => [1, 3, 5, 7].map((at) => parseInt(color.slice(at, at + 2) || "ff", 16));

// A share of one colour in another.
function mixed(color, other, share) {
  const channels = rgba(color).map((byte, i) => Math.round(byte + share * (rgba(other)[i] - byte)));
  return `#${channels.slice(0, 3).map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

// The relative luminance of a colour (WCAG 2.1), and the colour of letters on it: that of the ground, or of other
// letters where that is too pale.
function luminance(color) {
  const [red, green, blue] = rgba(color).map((byte) => (byte > 10 ? ((byte / 255 + 0.055) / 1.055) ** 2.4 : byte / 3294.6));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
function contrastOf(color, other) {
  const [low, high] = [luminance(color), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}
// A colour as letters on the ground: as dark, or light, as small text needs.
function asLetters(color) {
  const shades = [0, 0.15, 0.3, 0.45, 0.6, 1].map((share) => mixed(color, ink("ink"), share));
  return shades.find((shade) => contrastOf(shade, ink("ground")) >= 4.5) ?? ink("ink");
}
const lettersOn = (color) => (contrastOf(color, ink("ground")) > 3.5 ? ink("ground") : ink("ink"));

// One colour for symbols on all of the colours: two would look like one more value.
function lettersOnAll(colors) {
  const least = (letters) => Math.min(...colors.map((color) => contrastOf(color, letters)));
  return least(ink("ink")) >= least(ink("ground")) ? ink("ink") : ink("ground");
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// A spot of a colour, and a text after it.
const swatch = (color) => Object.assign(element("i"), { style: `background: ${color}` });
const keyed = (color, textContent) => element("span", { className: "key" }, swatch(color), element("span", { textContent }));
// What is held is marked in the colour of letters, which no class has: a line, a ring or an outline, and a text.
const heldKey = (className, textContent, color) => element("span", { className: "key" }, element("i", { className, style: color ? `background: ${color}` : "" }), element("span", { textContent }));

// Three significant digits, or as many of a range, and all of the integer part; integers, which may be identifiers,
// as they are.
function written(value, range = Infinity) {
  if (!Number.isFinite(value)) return "none";
  const more = Math.min(Math.max(Math.floor(Math.log10(Math.abs(value) / range)), 0), 9) || 0;
  if (value < 0) return `−${written(-value, range)}`;
  if (Number.isInteger(value)) return String(value);
  const whole = Math.trunc(Math.abs(value)).toFixed(0).length;
  const short = Number(value.toPrecision(Math.min(Math.max(3 + more, whole), 17)));
  return Math.abs(short) < 1000 ? String(short) : short.toLocaleString("en", { maximumFractionDigits: 9 });
}
