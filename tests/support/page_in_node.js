// Run the script of a page without a browser: elements keep their texts, and nothing is drawn.
// The page and the body of an async function come on stdin; what the function returns goes to stdout.
const { runInThisContext } = require("vm");
const { page, actions } = JSON.parse(require("fs").readFileSync(0, "utf8"));

// Whatever is asked of a canvas or of WebGL: itself again, or 1.
const nothing = new Proxy(() => {}, {
  get: (_, name) => (name === Symbol.toPrimitive ? () => 1 : nothing),
  set: () => true,
  apply: () => nothing,
});

class Element {
  constructor(name) {
    Object.assign(this, { name, nodes: [], dataset: {}, attributes: {}, style: {}, listeners: [] });
    Object.assign(this, { className: "", clientWidth: 1000, clientHeight: 700, offsetWidth: 30, offsetHeight: 90, offsetTop: 0, offsetLeft: 0 });
    this.classList = { toggle() {} };
  }
  get children() { return this.nodes.filter((node) => node instanceof Element); }
  get firstElementChild() { return this.children[0]; }
  get lastElementChild() { return this.children.at(-1); }
  get nextSibling() { return this.parentElement.nodes[this.parentElement.nodes.indexOf(this) + 1]; }
  get nextElementSibling() { return this.parentElement.children[this.parentElement.children.indexOf(this) + 1]; }
  get tBodies() { return this.querySelectorAll("tbody"); }
  get tHead() { return this.querySelector("thead"); }
  get options() { return this.querySelectorAll("option"); }
  get value() { return this.chosen ?? (this.options.length ? String(this.options[0].chosen ?? this.options[0].textContent) : ""); }
  set value(value) { this.chosen = String(value); }
  get textContent() { return this.nodes.map((node) => node.textContent).join(""); }
  set textContent(text) { this.nodes = [{ textContent: text ?? "" }]; }
  append(...nodes) {
    for (const node of nodes) {
      if (node instanceof Element) node.parentElement = this;
      this.nodes.push(node instanceof Element ? node : { textContent: String(node) });
    }
  }
  replaceChildren(...nodes) {
    this.nodes = [];
    this.append(...nodes);
  }
  remove() { this.parentElement.nodes.splice(this.parentElement.nodes.indexOf(this), 1); }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  addEventListener(name, listener) { this.listeners.push([name, listener]); }
  dispatchEvent(event) { for (const [name, listener] of this.listeners) if (name === event.type) listener(event); }
  getContext() { return nothing; }
  getBoundingClientRect() { return { left: 0, top: 0, width: 100, height: 100 }; }
  *within() { for (const child of this.children) yield* [child, ...child.within()]; }
  querySelectorAll(selector) {
    const [, name, kind] = selector.match(/^(\w+)(?:\.(\w+)|\[data-bin\])?$/);
    return [...this.within()].filter((each) => each.name === name && (!kind || each.className === kind) && (!selector.endsWith("]") || "bin" in each.dataset));
  }
  querySelector(selector) { return this.querySelectorAll(selector)[0]; }
  setCustomValidity(text) { this.validity = text; }
  reportValidity() {}
  scrollIntoView() {}
}

// The elements of the page; whatever is not inside an element of the body is of no use here.
const root = new Element("root");
let open = root;
for (const match of page.matchAll(/<(script|style)([^>]*)>(.*?)<\/\1>|<(\/?)(\w+)((?:"[^"]*"|[^">])*)>|([^<]+)/gs)) {
  const [, raw, rawWords, content, close, tag, words, text] = match;
  if (text) open.append(text);
  if (close) open = open.parentElement;
  const name = raw || (!close && tag);
  if (!name) continue;
  const made = new Element(name);
  open.append(made);
  for (const [, key, value] of (rawWords || words || "").matchAll(/([\w-]+)="([^"]*)"/g)) made[key === "class" ? "className" : key] = value;
  if (raw) made.textContent = content;
  else if (!/^(meta|input)$/.test(name)) open = made;
}
const elements = () => [...root.within()];
const style = root.querySelector("style").textContent;
Object.assign(globalThis, {
  window: globalThis,
  document: {
    body: root.querySelector("body"), documentElement: root, title: root.querySelector("title").textContent,
    getElementById: (id) => elements().find((each) => each.id === id),
    querySelectorAll: (selector) => root.querySelectorAll(selector),
    createElement: (name) => new Element(name), createElementNS: (_, name) => new Element(name),
  },
  matchMedia: () => ({ matches: false, addEventListener() {} }),
  getComputedStyle: () => ({ getPropertyValue: (name) => (style.match(`${name}: (.*?);`) || ["", ""])[1] }),
  addEventListener() {}, requestAnimationFrame() {}, setTimeout() {}, clearTimeout() {},
  ResizeObserver: class { observe() {} }, ImageData: class { data = new Uint8Array(4); }, createImageBitmap: () => nothing,
  location: { hash: "", href: "page" }, history: { replaceState() {} },
});

runInThisContext(root.querySelectorAll("script").at(-1).textContent);
const waiting = setInterval(async () => {
  if (document.body.dataset.state !== "ready") return;
  clearInterval(waiting);
  console.log(JSON.stringify(await runInThisContext(`(async () => { ${actions} })()`)));
}, 5);
