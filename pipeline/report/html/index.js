/* The script of the index: it filters by state and text, makes older parts of the grid when they are opened, fills the
   list below the grid, handles arrow keys, compares two epochs or two revisions, and shows the command for an epoch
   without a page. */
"use strict";
(() => {
  const at = id => document.getElementById(id);
  const search = at("search"), month = at("month"), list = at("list"), more = at("more"), save = at("save"), found = at("found"), hint = at("hint");
  if (!search) return;
  const { rows, states, base, differences, folds: older } = JSON.parse(at("data").textContent);
  const boxes = [...document.querySelectorAll(".filter input[type=checkbox]")];
  const folds = [...document.querySelectorAll("details.older")];
  const number = value => value === null ? "–" : value.toLocaleString("en-US");
  const page = 20;
  let shown = page, matching = rows;

  const make = (name, text, kind) => {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };

  const labelOf = cell => cell.value || cell.getAttribute("href").slice((base + "epoch=").length, -".html".length);

  const square = (group, place) => {
    const [label, state, page] = rows[rows.length - 1 - group.first - place];
    const text = group.cells ? group.cells[place] : group.days ? String(Number(label.slice(-2))) : label;
    const said = group.days ? text + " " + group.name : text.includes(":") ? group.name + " " + text : label;
    const made = make(page ? "a" : "button", text, "c " + states[state][0] + (page === 2 ? " old" : ""));
    if (page) made.href = base + "epoch=" + label + ".html"; else made.value = label;
    made.setAttribute("aria-label", said + ": " + states[state][2] + (page === 2 ? ", page out of date" : ""));
    if (group.days && place === 0) made.style.gridColumnStart = group.lead + 1;
    return made;
  };

  const build = fold => {
    if (fold.dataset.made) return;
    fold.dataset.made = "yes";
    const groups = older[folds.indexOf(fold)], whole = make("div", "", "groups" + (groups[0].days ? " calendar" : ""));
    groups.forEach(group => {
      const part = make("section", "", "group"), cells = make("div", "", "cells");
      part.setAttribute("aria-label", group.name);
      if (group.days) ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"].forEach(name => {
        const day = make("span", name, "day");
        day.setAttribute("aria-hidden", "true");
        cells.append(day);
      });
      for (let place = 0; place < group.count; place++) cells.append(square(group, place));
      part.append(make("h3", group.name), cells);
      whole.append(part);
    });
    fold.append(whole);
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

  /* The order of the list: a column of the rows, and whether it is descending. Without a column the newest comes first. */
  let column = null, down = true;
  const heads = [...list.tHead.querySelectorAll("button")], columns = [0, 1, 3, 4, 5, 6, 7, 8];
  const value = (row, place) => row[place] === null ? -1 : row[place];
  const ordered = some => column === null || (column === 0 && down) ? some : [...some].sort((one, other) => {
    const [a, b] = column === 0 ? [rows.indexOf(other), rows.indexOf(one)] : [value(one, column), value(other, column)];
    return down ? b - a : a - b;
  });

  const filter = () => {
    const text = search.value.trim().toLowerCase();
    const marks = new Set(boxes.filter(box => box.checked).map(box => box.value));
    const narrow = text || marks.size < boxes.length;
    const keeps = (label, mark) => marks.has(mark) && label.toLowerCase().includes(text);
    if (narrow) folds.forEach(build);
    document.querySelectorAll(".c").forEach(cell => cell.classList.toggle("off", !keeps(labelOf(cell), cell.classList[1])));
    document.querySelectorAll(".group").forEach(group => { group.hidden = !group.querySelector(".c:not(.off)"); });
    folds.forEach(fold => {
      fold.hidden = Boolean(narrow) && !fold.querySelector(".c:not(.off)");
      if (narrow) {
        if (!fold.open && !fold.hidden) { fold.open = true; fold.dataset.found = ""; }
      } else if ("found" in fold.dataset) {
        fold.open = false;
        delete fold.dataset.found;
      }
    });
    matching = ordered(rows.filter(([label, state]) => keeps(label, states[state][0])));
    const all = number(rows.length) + (rows.length === 1 ? " epoch" : " epochs");
    found.textContent = matching.length === rows.length ? all : number(matching.length) + " of " + all;
    shown = page;
    fill();
  };

  const go = name => {
    const place = older.findIndex(groups => groups.some(group => group.name === name));
    if (place >= 0) { build(folds[place]); folds[place].open = true; }
    const part = [...document.querySelectorAll(".group")].find(group => group.getAttribute("aria-label") === name);
    if (!part || part.hidden) return;
    part.scrollIntoView({ block: "center" });
    part.querySelector(".c:not(.off)").focus();
  };

  const arrows = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -7, ArrowDown: 7 };
  document.addEventListener("keydown", event => {
    const cell = event.target.closest(".c"), step = arrows[event.key];
    if (!cell || !step) return;
    const cells = [...cell.closest(".cells").querySelectorAll(".c:not(.off)")], next = cells[cells.indexOf(cell) + step];
    if (next) { event.preventDefault(); next.focus(); }
  });

  /* Two epochs side by side. The address names them, so that it can be sent to others. */
  const pair = ["from", "to"].map(at).filter(Boolean);
  const compare = () => {
    const two = pair.map(box => rows.find(([label]) => label === box.value.trim()));
    const says = at("compared"), body = at("difference").tBodies[0];
    at("difference").hidden = two.includes(undefined);
    body.replaceChildren();
    if (two.includes(undefined)) {
      const missing = pair.filter((box, place) => box.value.trim() && !two[place]).map(box => box.value.trim());
      says.textContent = missing.length ? "Not among the epochs of this page: " + missing.join(", ") : "";
      return;
    }
    says.textContent = "";
    history.replaceState(null, "", "#compare=" + two.map(([label]) => encodeURIComponent(label)).join(","));
    two.forEach((row, place) => { at("head-" + place).textContent = row[0]; });
    ["Rows", "Quarantined", "Vertices", "Edges", "Triangles", "Greatest trussness"].forEach((name, place) => {
      const [one, other] = two.map(row => row[3 + place]), made = document.createElement("tr"), head = make("th", name);
      head.scope = "row";
      const step = one === null || other === null ? "–" : (other > one ? "+" : other < one ? "−" : "±") + number(Math.abs(other - one));
      made.append(head, make("td", number(one)), make("td", number(other)), make("td", step));
      body.append(made);
    });
  };
  const asked = () => {
    const named = location.hash.match(/^#compare=([^,]+),(.+)$/);
    if (!named || !pair.length) return;
    pair.forEach((box, place) => { box.value = decodeURIComponent(named[place + 1]); });
    compare();
    at("h-compare").scrollIntoView();
  };
  pair.forEach(box => box.addEventListener("input", compare));
  if (pair.length) pair[0].form.addEventListener("submit", event => event.preventDefault());
  window.addEventListener("hashchange", asked);

  /* Two revisions: the page of their difference, or the command that writes it. The address names them as well. */
  const both = ["old", "new"].map(at).filter(Boolean);
  const differ = () => {
    const two = both.map(box => box.value), name = two.join("-"), says = at("differ");
    if (two[0] === two[1]) { says.textContent = "These are the same revision."; return; }
    const link = make("a", "What readers saw change from revision " + two[0] + " to " + two[1]);
    link.href = base + "diff-" + name + ".html";
    const command = make("code", "altneu diff " + two.join(" ") + " --page");
    says.replaceChildren(...(differences.includes(name) ? [link] : ["No page of this difference was written yet. Type ", command]));
  };
  both.forEach(box => box.addEventListener("change", () => {
    differ();
    history.replaceState(null, "", "#revisions=" + both.map(each => each.value).join(","));
  }));
  const revisions = location.hash.match(/^#revisions=(\d+),(\d+)$/);
  if (both.length) {
    if (revisions) { both.forEach((box, place) => { box.value = revisions[place + 1]; }); at("h-revisions").scrollIntoView(); }
    differ();
  }

  folds.forEach(fold => fold.addEventListener("toggle", () => { if (fold.open) build(fold); }));
  search.addEventListener("input", filter);
  boxes.forEach(box => box.addEventListener("change", filter));
  if (month) month.addEventListener("change", () => go(month.value));
  search.form.addEventListener("submit", event => event.preventDefault());
  heads.forEach((button, place) => button.addEventListener("click", () => {
    down = column === columns[place] ? !down : true;
    column = columns[place];
    heads.forEach((each, other) => {
      if (other === place) each.closest("th").setAttribute("aria-sort", down ? "descending" : "ascending");
      else each.closest("th").removeAttribute("aria-sort");
    });
    filter();
  }));
  save.addEventListener("click", () => {
    const lines = matching.map(row => [row[0], states[row[1]][2], ...row.slice(3)].map(cell => cell ?? "").join(","));
    const link = make("a", "");
    link.download = "epochs.csv";
    link.href = "data:text/csv;charset=utf-8," + encodeURIComponent(
      ["epoch,state,rows,quarantined,vertices,edges,triangles,max_trussness", ...lines].join("\n") + "\n");
    link.click();
  });
  more.addEventListener("click", () => { shown += page; fill(); });
  document.addEventListener("click", event => {
    const cell = event.target.closest("button.c");
    if (!cell) return;
    const command = make("code", "altneu report " + cell.value);
    hint.replaceChildren("No page was written for " + cell.value + " yet. Type ", command);
    hint.hidden = false;
  });
  filter();
  asked();
})();
