// The page without a target: builds and runs, each with its page or the command that writes it, and curves.

// A table whose rows begin with a name, which leads to the page, and the command that writes it.
function listed(heading, entries) {
  if (!entries.length) return [];
  const rows = entries.map(({ cells: [name, ...others], page, command }) => {
    const way = element(page ? "a" : "span", page ? { href: page, textContent: name } : { textContent: name });
    const first = element("td", {}, way, element("code", { textContent: command }));
    return element("tr", {}, first, ...others.map((textContent) => element("td", { textContent })));
  });
  const head = element("tr", {}, ...heading.map((textContent) => element("th", { textContent })));
  return [element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))];
}

function sectionOf({ title, builds, runs, curves }) {
  const lists = element("div", {}, ...listed(["build", "graphs"], builds), ...listed(["run", "state", "epochs", "test"], runs));
  const [select, chart] = [element("select"), element("div")];
  const figures = element("div", {}, element("label", { textContent: "Learning curves " }, select), chart);
  figures.hidden = !showCurves(curves, select, chart);
  return element("section", {}, element("h2", { textContent: title }), lists, figures);
}

const { home, datasets } = JSON.parse($("header").textContent);
$("about").textContent = datasets.length ? `What is in ${home}.` : `Nothing is in ${home} yet: kmip-data build helsinki`;
$("datasets").append(...datasets.map(sectionOf));
document.body.dataset.state = "ready";
