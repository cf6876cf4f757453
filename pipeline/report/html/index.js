/* Filter by state and text; the list below the grid; what to type for an epoch without a page. */
"use strict";
(() => {
  const at = id => document.getElementById(id);
  const search = at("search"), list = at("list"), more = at("more"), found = at("found"), hint = at("hint"), folds = [...document.querySelectorAll("details.older")];
  if (!search) return;
  const { rows, states, base } = JSON.parse(at("data").textContent);
  const boxes = [...document.querySelectorAll(".filter input[type=checkbox]")];
  const cells = [...document.querySelectorAll(".c")];
  const labels = cells.map(cell => cell.value || cell.getAttribute("href").slice((base + "epoch=").length, -".html".length));
  const groups = [...document.querySelectorAll(".group")];
  const number = value => value === null ? "–" : value.toLocaleString("en-US");
  const page = 20;
  let shown = page, matching = rows;

  const make = (name, text, kind) => {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };

  const line = row => {
    const [label, state, page] = row;
    const made = document.createElement("tr"), head = make("th", "");
    head.scope = "row";
    if (page) {
      const link = make("a", label);
      link.href = base + "epoch=" + label + ".html";
      head.append(link);
    } else head.textContent = label;
    const [mark, symbol, short] = states[state];
    const said = make("td", "", "text"), badge = make("span", "", "badge " + mark), sign = make("span", symbol);
    sign.setAttribute("aria-hidden", "true");
    badge.append(sign, " " + short);
    said.append(badge);
    made.append(head, said);
    row.slice(3).forEach((value, place) => made.append(make("td", number(value), [0, 1, 2, 5].includes(place) ? "wide" : "")));
    return made;
  };

  const fill = () => {
    list.tBodies[0].replaceChildren(...matching.slice(0, shown).map(line));
    more.hidden = matching.length <= shown;
  };

  const filter = () => {
    const text = search.value.trim().toLowerCase();
    const marks = new Set(boxes.filter(box => box.checked).map(box => box.value));
    const keeps = (label, mark) => marks.has(mark) && label.toLowerCase().includes(text);
    cells.forEach((cell, place) => cell.classList.toggle("off", !keeps(labels[place], cell.classList[1])));
    groups.forEach(group => { group.hidden = !group.querySelector(".c:not(.off)"); });
    folds.forEach(fold => {
      fold.hidden = !fold.querySelector(".c:not(.off)");
      if (text || marks.size < boxes.length) {
        if (!fold.open && !fold.hidden) { fold.open = true; fold.dataset.found = ""; }
      } else if ("found" in fold.dataset) {
        fold.open = false;
        delete fold.dataset.found;
      }
    });
    matching = rows.filter(([label, state]) => keeps(label, states[state][0]));
    found.textContent = matching.length === rows.length
      ? number(rows.length) + " epochs" : number(matching.length) + " of " + number(rows.length) + " epochs";
    shown = page;
    fill();
  };

  search.addEventListener("input", filter);
  boxes.forEach(box => box.addEventListener("change", filter));
  search.form.addEventListener("submit", event => event.preventDefault());
  more.addEventListener("click", () => { shown += page; fill(); });
  document.addEventListener("click", event => {
    const cell = event.target.closest("button.c");
    if (!cell) return;
    const command = make("code", "altneu report " + cell.value);
    hint.replaceChildren("No page was written for " + cell.value + " yet. Type ", command);
    hint.hidden = false;
  });
  filter();
})();
