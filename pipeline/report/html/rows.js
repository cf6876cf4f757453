/* The script of tables of rows: search, sort by a column, download what is shown. Without it they are plain tables. */
"use strict";
document.querySelectorAll(".live form").forEach(form => {
  const table = form.parentElement.querySelector("table"), body = table.tBodies[0], rows = [...body.rows];
  const [search, save, said] = ["input", "button", "[role=status]"].map(part => form.querySelector(part));
  const text = (row, place) => row.cells[place].textContent;
  const number = value => value !== "" && Number.isFinite(Number(value)) ? Number(value) : null;
  form.hidden = false;
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    rows.forEach(row => { row.hidden = ![...row.cells].some(cell => cell.textContent.toLowerCase().includes(wanted)); });
    said.textContent = wanted ? rows.filter(row => !row.hidden).length + " of " + rows.length + " rows" : "";
  });
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      [...table.tHead.rows[0].cells].forEach(each => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.sort((one, other) => {
        const [a, b] = [text(one, place), text(other, place)], [x, y] = [number(a), number(b)];
        const order = x !== null && y !== null ? x - y : a.localeCompare(b);
        return down ? -order : order;
      });
      body.append(...rows);
    });
  });
  save.addEventListener("click", () => {
    const quoted = value => /[",\n]/.test(value) ? '"' + value.replaceAll('"', '""') + '"' : value;
    const shown = [table.tHead.rows[0], ...body.rows].filter(row => !row.hidden);
    const lines = shown.map(row => [...row.cells].map(cell => quoted(cell.textContent)).join(","));
    const link = document.createElement("a");
    link.download = save.dataset.name;
    link.href = "data:text/csv;charset=utf-8," + encodeURIComponent(lines.join("\n") + "\n");
    link.click();
  });
});
