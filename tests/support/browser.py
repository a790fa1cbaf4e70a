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


def browser() -> str:
    """Return the browser, or skip."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no chromium on this machine")
    return path


def act_in_node(page: Path, actions: str) -> Any:
    """Run ``actions`` as :func:`act` does, in Node.js: texts are those of the page, but nothing has a place."""
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    script = Path(__file__).with_name("page_in_node.js")
    asked = json.dumps({"page": page.read_text("utf-8"), "actions": actions})
    done = subprocess.run(
        ["node", script], input=asked, capture_output=True, text=True, check=False, timeout=600
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
