"""Open a page in a real browser without a window, act on it, and bring back what it says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Virtual time passes while the browser decodes pictures, which takes long on a busy machine.
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    "--hide-scrollbars", "--no-first-run", "--disable-extensions", "--virtual-time-budget=60000",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip

#: Before anything else in the page: keep what goes wrong.
WATCH = """<script>
window.wrong = [];
addEventListener("error", (event) => wrong.push(String(event.message)));
addEventListener("unhandledrejection", (event) => wrong.push(String(event.reason)));
for (const name of ["error", "warn"]) console[name] = (...words) => wrong.push(words.join(" "));
</script>"""

#: After everything: run the actions, and write what they return where --dump-dom finds it.
ACT = """<script>
(async () => {
  while (document.body.dataset.state === "loading") await new Promise((done) => setTimeout(done, 5));
  let found = null;
  try {
    found = await (async () => { %s })();
  } catch (error) {
    wrong.push(String(error.stack));
  }
  const result = JSON.stringify({ found, wrong, state: document.body.dataset.state });
  document.body.append(Object.assign(document.createElement("pre"), { id: "result", textContent: result }));
})();
</script>"""

#: Runs the script of a page: elements keep their texts, ``texts`` are all of them, and nothing is drawn.
PAGE_IN_NODE = r"""
{
const { runInThisContext } = require("vm");
const { page, actions } = JSON.parse(require("fs").readFileSync(0, "utf8"));

const texts = (globalThis.texts = new Set()); // all that the page ever writes
const keep = (nodes) => nodes.filter((node) => node?.nodes || texts.add(String(node)));

// An element, or whatever else is asked of one: another element, also as the result of a call, or 1.
function made(text = "") {
  const own = {
    nodes: text ? [text] : [], listeners: {}, value: "", options: [], querySelectorAll: () => [],
    append: (...nodes) => own.nodes.push(...keep(nodes)),
    replaceChildren: (...nodes) => (own.nodes = keep(nodes)),
    addEventListener: (name, listener) => (own.listeners[name] = listener),
    [Symbol.toPrimitive]: () => 1,
  };
  return new Proxy(made, {
    get(_, key) {
      if (key === "textContent") return own.nodes.map((node) => node?.textContent ?? String(node)).join("");
      return (own[key] ??= made());
    },
    set(_, key, value) {
      if (key === "textContent") own.nodes = keep([value ?? ""]);
      else own[key] = /^(title|ariaLabel)$/.test(key) ? keep([value])[0] : value;
      return true;
    },
    apply: () => made(),
  });
}

const elements = {};
const [header, data, script] = page.match(/(?<=<script[^>]*>).*?(?=<\/script>)/gs);
const createElement = () => made();
Object.assign(globalThis, {
  window: globalThis, addEventListener() {}, requestAnimationFrame() {}, setTimeout() {}, clearTimeout() {},
  document: {
    body: made(), createElement, createElementNS: createElement,
    getElementById: (id) => (elements[id] ??= made()),
    querySelectorAll: () => [Object.assign(made(header), { nextElementSibling: made(data) })],
  },
  matchMedia: () => ({ addEventListener() {} }),
  getComputedStyle: () => ({ getPropertyValue: (name) => page.match(`${name}: (.*?);`)?.[1] ?? "" }),
  ResizeObserver: class { observe() {} },
  location: { hash: "" },
});
Object.assign(document.getElementById("canvas"), { clientWidth: 1000, clientHeight: 700 });
runInThisContext(script);
const waiting = setInterval(async () => {
  if (typeof document.body.dataset.state !== "string") return;
  clearInterval(waiting);
  console.log(JSON.stringify(await runInThisContext(`(async () => { ${actions} })()`)));
}, 5);
}
"""


def browser() -> str:
    """Return the browser, or skip."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no chromium on this machine")
    return path


def act_in_node(page: Path, actions: str) -> Any:
    """Run ``actions`` as :func:`act` does, in Node.js, on elements that have nothing but texts."""
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    asked = json.dumps({"page": page.read_text("utf-8"), "actions": actions})
    command = ["node", "-e", PAGE_IN_NODE]
    done = subprocess.run(
        command, input=asked, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def act(page: Path, actions: str, folder: Path, *, size: tuple[int, int] = (1000, 700)) -> Any:
    """Open ``page``, run ``actions`` (the body of an async function) once it is ready.

    Return their result.

    Fails where the page reports an error or warning of any kind, or is not ready.
    """
    text = page.read_text("utf-8")
    acting = folder / f"acting-{page.name}"
    text = text.replace("<head>", f"<head>{WATCH}", 1).replace(
        "</body>", f"{ACT % actions}</body>", 1
    )
    acting.write_text(text, "utf-8")
    window = (
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={size[0]},{size[1]}",
        "--dump-dom",
    )
    command = [browser(), *OPTIONS, *window, acting.absolute().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert result is not None, done.stdout[-3000:]
    answer = json.loads(unescape(result[1]))
    assert answer["wrong"] == []
    assert answer["state"] == "ready"
    return answer["found"]
