// A click on a heading sorts its table by that column, a second click the other way round; fields without a value stay last.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.parentElement, body = heading.closest("table").tBodies[0];
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => row.cells[heading.cellIndex].dataset.sort;
    const order = (a, b) => isNaN(a) || isNaN(b) ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
    const missing = row => value(row) === undefined;
    const rows = [...body.rows].sort((a, b) =>
      missing(a) || missing(b) ? missing(a) - missing(b) : (up ? 1 : -1) * order(value(a), value(b)));
    body.append(...rows);
  });
}
// A table that is wider than its place says so.
const watch = new ResizeObserver(entries => {
  for (const { target } of entries) target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 1);
});
for (const table of document.querySelectorAll(".table")) watch.observe(table);
