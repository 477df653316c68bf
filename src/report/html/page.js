"use strict";
(() => {
  const table = document.getElementById("table");
  const cases = [...table.tBodies];
  const filter = document.getElementById("filter");
  const chips = [...document.querySelectorAll(".chips button")];
  const shown = document.getElementById("shown");

  function open(body, yes) {
    body.classList.toggle("opened", yes);
    body.querySelector(".open").setAttribute("aria-expanded", String(yes));
  }

  table.addEventListener("click", (event) => {
    const row = event.target.closest("tr.row");
    // Whoever selects an id to copy it does not want the row to jump.
    const selects = !event.target.closest("button") && String(getSelection()) !== "";
    if (row && !selects) {
      const body = row.parentElement;
      open(body, !body.classList.contains("opened"));
    }
  });

  function apply() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const pressed = chips.filter((chip) => chip.getAttribute("aria-pressed") === "true");
    const allowed = pressed.map((chip) => chip.dataset.word);
    let count = 0;
    for (const body of cases) {
      const text = (body.dataset.id + " " + body.dataset.word).toLowerCase();
      const yes = words.every((word) => text.includes(word)) &&
        (allowed.length === 0 || allowed.includes(body.dataset.word));
      body.hidden = !yes;
      count += yes;
    }
    shown.textContent = count === cases.length ? "" : `${count} of ${cases.length} shown`;
  }

  filter.addEventListener("input", apply);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      apply();
    });
  }

  const heads = [...table.tHead.querySelectorAll("button")];
  for (const head of heads) {
    head.addEventListener("click", () => {
      const key = head.dataset.key;
      const text = key === "id" || key === "word";
      const before = head.getAttribute("aria-sort");
      // Figures first the largest: what is slow is what one looks for.
      const down = before ? before === "ascending" : !text;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      const order = (a, b) => {
        const [x, y] = [a.dataset[key], b.dataset[key]];
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return sign * (text ? x.localeCompare(y, "en", { numeric: true }) : x - y);
      };
      table.append(...cases.sort(order));
    });
  }

  function follow() {
    const target = /^#c\d+$/.test(location.hash) && document.querySelector(location.hash);
    if (!target) return;
    target.hidden = false;
    open(target, true);
    target.scrollIntoView();
  }
  addEventListener("hashchange", follow);
  follow();
})();
