// Tables of a report: a click on a heading sorts, the field filters.

const rowsOf = (table) => [...table.tBodies[0].rows].slice(1);
const tables = [...document.querySelectorAll("table")];

const UNITS = { s: 1, min: 60, h: 3600, days: 86400 };

// The seconds of a time, the number that a cell begins with, or its text.
function sortKey(cell) {
  const text = cell.textContent.replaceAll(",", "").replace("−", "-");
  const times = [...text.matchAll(/(\d+) (s|min|h|days)\b/g)];
  if (times.length) return times.reduce((sum, [, count, unit]) => sum + count * UNITS[unit], 0);
  const found = text.match(/^[+-]?\d+(\.\d+)?/);
  return found ? Number(found[0]) : text;
}

function sortBy(table, column, down) {
  const rows = rowsOf(table).map((row) => [sortKey(row.cells[column]), row]);
  // Texts, such as the dash of what is missing, come after numbers whichever way.
  const text = ([key]) => Number(typeof key === "string");
  const order = ([a], [b]) => (typeof a === "string" ? a.localeCompare(b) : a - b);
  rows.sort((a, b) => text(a) - text(b) || (down ? order(b, a) : order(a, b)));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

for (const table of tables) {
  [...table.rows[0].cells].forEach((cell, _, heads) => {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: cell.textContent });
    button.addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "ascending";
      for (const each of heads) each.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      sortBy(table, cell.cellIndex, down);
    });
    cell.replaceChildren(button);
  });
}

// Mark the column that the rows are sorted by: the best comes first.
for (const table of tables) {
  const results = rowsOf(table).map((row) => sortKey(row.cells[1]));
  table.rows[0].cells[1].setAttribute("aria-sort", results[0] >= results.at(-1) ? "descending" : "ascending");
}

document.getElementById("filter").addEventListener("input", (event) => {
  const words = event.target.value.toLowerCase().split(/\s+/);
  for (const row of tables.flatMap(rowsOf)) {
    row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  }
  // A table without a row left goes with its heading and pictures.
  const sections = tables.map((table) => table.closest("section"));
  sections.forEach((section, i) => (section.hidden = rowsOf(tables[i]).every((row) => row.hidden)));
  document.getElementById("none").hidden = sections.some((section) => !section.hidden);
});

document.body.dataset.state = "ready";
