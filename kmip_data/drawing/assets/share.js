// What another reader needs to see the same: an address with the state of the page, and a picture.

let due = 0; // timer that writes the address
let recordShown = 0;
const KEY = 240; // CSS pixels of the key in a picture
const SWITCHES = ["lines", "picture"];

// Show what an address says, where it fits this graph; keep the address as the state of the page.
function startSharing(shared, record) {
  recordShown = record;
  const numbers = (name) => (shared.get(name) || "").split(",").filter(Boolean).map(Number);
  const isGiven = (values, count) => values.length === count && values.every(Number.isFinite);
  const [node] = numbers("node");
  if (Number.isInteger(node) && node >= 0 && node < x.length && node !== state.node) hold(node);
  for (const name of ["layer", "head"]) {
    const options = [...$(name).options].map(({ value }) => value);
    if (options.includes(shared.get(name))) $(name).value = shared.get(name);
  }
  for (const name of SWITCHES) if (shared.has(name)) $(name).checked = shared.get(name) === "1";
  state.only = new Set(numbers("only").filter((bin) => $("legend").querySelector(`[data-bin="${bin}"]`)));
  showPressed();
  listKeys();
  updateLooks();
  const [turned, at] = [numbers("turned"), numbers("at")];
  if (turning && isGiven(turned, 2)) turning.turnTo(...turned);
  if (isGiven(at, 3)) view.lookAt(at.slice(0, 2), at[2]);

  addEventListener("hashchange", () => location.reload());
  $("copy").addEventListener("click", copyLink);
  $("save").addEventListener("click", savePicture);
}

function address() {
  const brief = (values) => values.map((value) => Number(value.toPrecision(6))).join();
  const parts = { by: state.layer.name };
  if (recordShown) parts.record = recordShown;
  if (state.node >= 0) parts.node = state.node;
  if (chosen) Object.assign(parts, { layer: $("layer").value, head: $("head").value });
  if (state.only.size) parts.only = [...state.only].join();
  for (const name of SWITCHES) if ($(name).checked !== $(name).defaultChecked) parts[name] = Number($(name).checked);
  if (turning) parts.turned = brief(turning.angles());
  if (view.moved) parts.at = brief([...view.center, view.zoomed()]);
  return `#${new URLSearchParams(parts)}`;
}

// Write the address when nothing has moved for a moment: browsers refuse to do so often.
function remember() {
  clearTimeout(due);
  due = setTimeout(() => history.replaceState(null, "", address()), 400);
}

// The legend as the sidebar has it, moved so far: spots, bars and ramps in their colours, and texts.
function drawKey(pen, right, down, write) {
  for (const part of $("legend").querySelectorAll("i, .ramp, span, p")) {
    const { left, top, width, height } = part.getBoundingClientRect();
    const place = left + right;
    const shades = part.style.background.match(/#\w+|rgb\([^)]*\)/g);
    if (!shades) {
      write(part.textContent, place, top + down + 13, "13px");
      continue;
    }
    pen.fillStyle = pen.createLinearGradient(place, 0, place + width, 0);
    shades.forEach((shade, i) => pen.fillStyle.addColorStop(i / Math.max(shades.length - 1, 1), shade));
    pen.fillRect(place, top + down, width, height);
  }
}

async function copyLink() {
  const link = location.href.split("#")[0] + address();
  try {
    await navigator.clipboard.writeText(link);
    $("copy").textContent = "Copied";
    setTimeout(() => ($("copy").textContent = "Copy link"), 2000);
  } catch {
    prompt("Link to what is shown", link); // a browser that lets no page write to the clipboard
  }
}

// The map with the titles of its panes, its key, what it shows, and the credit that its license may require.
function savePicture() {
  const ratio = window.devicePixelRatio || 1;
  drawNow(); // what WebGL has drawn is there until the browser shows it
  const { width, height } = canvas;
  const key = $("legend").getBoundingClientRect();
  const picture = element("canvas", { width: width + KEY * ratio, height: Math.max(height, (key.height + 24) * ratio) });
  const pen = picture.getContext("2d");
  pen.fillStyle = ink("ground");
  pen.fillRect(0, 0, picture.width, picture.height);
  pen.drawImage(canvas, 0, 0);
  pen.drawImage($("overlay"), 0, 0);

  pen.scale(ratio, ratio);
  const write = (text, left, top, font, textAlign = "left") => {
    Object.assign(pen, { font: `${font} ${ink("font")}, sans-serif`, fillStyle: ink("ink"), textAlign });
    pen.fillText(text, left, top);
  };
  drawKey(pen, canvas.clientWidth + 8 - key.left, 12 - key.top, write);
  for (const title of $("panes").hidden ? [] : $("panes").children) write(title.firstChild.textContent, title.offsetLeft + 14, title.offsetTop + 26, "600 18px");
  write(`${[document.title, $("score").textContent].filter(Boolean).join(", ")}: ${titleOf(state.layer.name)} ${$("range").textContent.split(";")[0]}`, 12, canvas.clientHeight - 24, "12px");
  write($("credit").textContent, canvas.clientWidth - 6, canvas.clientHeight - 6, "12px", "right");
  picture.toBlob((blob) => {
    const href = URL.createObjectURL(blob);
    element("a", { href, download: `${document.title} ${state.layer.name}.png`.replace(/[^\p{L}\p{N}.]+/gu, "-") }).click();
    setTimeout(() => URL.revokeObjectURL(href), 10000);
  });
}
