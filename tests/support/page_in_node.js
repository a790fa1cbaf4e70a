// Run the script of a page without a browser: elements keep their texts, and nothing is drawn.
// The page and the body of an async function come on stdin; what the function returns goes to stdout.
const { runInThisContext } = require("vm");
const { page, actions } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const nothing = new Proxy(() => {}, { // any part of a canvas: itself again, or 1
  get: (_, name) => (name === Symbol.toPrimitive ? () => 1 : nothing),
  set: () => true,
  apply: () => nothing,
});

class Element {
  constructor(name) {
    const sizes = { clientWidth: 1000, clientHeight: 700, offsetWidth: 30, offsetHeight: 90, offsetTop: 0 };
    Object.assign(this, { name, nodes: [], dataset: {}, style: {}, listeners: [], classList: { toggle() {} }, ...sizes });
  }
  get children() { return this.nodes.filter(({ nodes }) => nodes); }
  get firstElementChild() { return this.children[0]; }
  get lastElementChild() { return this.children.at(-1); }
  get nextSibling() { return this.parentElement.nodes[this.parentElement.nodes.indexOf(this) + 1]; }
  get nextElementSibling() { return this.nextSibling; }
  get tBodies() { return this.querySelectorAll("tbody"); }
  get tHead() { return this.querySelector("thead"); }
  get options() { return this.querySelectorAll("option"); }
  get value() { return this.chosen ?? this.options[0]?.value ?? ""; }
  set value(value) { this.chosen = String(value); }
  get textContent() { return this.nodes.map(({ textContent }) => textContent).join(""); }
  set textContent(text) { this.nodes = [{ textContent: text ?? "" }]; }
  append(...nodes) {
    for (const node of nodes) this.nodes.push(node.nodes ? Object.assign(node, { parentElement: this }) : { textContent: String(node) });
  }
  replaceChildren(...nodes) {
    this.nodes = [];
    this.append(...nodes);
  }
  remove() {}
  setAttribute() {}
  addEventListener(...listener) { this.listeners.push(listener); }
  dispatchEvent(event) { for (const [type, listener] of this.listeners) if (type === event.type) listener(event); }
  getContext() { return nothing; }
  *within() { for (const child of this.children) yield* [child, ...child.within()]; }
  querySelectorAll(selector) {
    const [, name, kind, bin] = selector.match(/^(\w+)\.?(\w+)?(\[data-bin\])?$/);
    return [...this.within()].filter((each) => each.name === name && (!kind || each.className === kind) && (!bin || "bin" in each.dataset));
  }
  querySelector(selector) { return this.querySelectorAll(selector)[0]; }
  setCustomValidity(text) { this.validity = text; }
  reportValidity() {}
  scrollIntoView() {}
}

const root = new Element("root");
let open = root;
for (const [, raw, attributes, content, close, tag, others, text] of page.matchAll(/<(script|style)(.*?)>(.*?)<\/\1>|<(\/?)(\w+)((?:"[^"]*"|[^">])*)>|([^<]+)/gs)) {
  if (text) open.append(text);
  if (close) open = open.parentElement;
  if (text || close || !(raw || tag)) continue;
  const made = new Element(raw || tag);
  open.append(made);
  for (const [, key, value] of (attributes ?? others).matchAll(/(\w+)="(.*?)"/g)) made[key === "class" ? "className" : key] = value;
  if (raw) made.textContent = content;
  else if (!/meta|input/.test(tag)) open = made;
}
const style = root.querySelector("style").textContent;
Object.assign(globalThis, {
  window: globalThis,
  document: {
    body: root.querySelector("body"), title: "", querySelectorAll: (selector) => root.querySelectorAll(selector),
    getElementById: (id) => [...root.within()].find((each) => each.id === id),
    createElement: (name) => new Element(name), createElementNS: (_, name) => new Element(name),
  },
  matchMedia: () => ({ addEventListener() {} }),
  getComputedStyle: () => ({ getPropertyValue: (name) => style.match(`${name}: (.*?);`)?.[1] ?? "" }),
  addEventListener() {}, requestAnimationFrame() {}, setTimeout() {}, clearTimeout() {},
  ResizeObserver: class { observe() {} },
  location: { hash: "" },
});
runInThisContext(root.querySelectorAll("script").at(-1).textContent);
const waiting = setInterval(async () => {
  if (!document.body.dataset.state) return;
  clearInterval(waiting);
  console.log(JSON.stringify(await runInThisContext(`(async () => { ${actions} })()`)));
}, 5);
