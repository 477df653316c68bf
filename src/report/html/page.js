"use strict";
(() => {
  const table = document.getElementById("table");
  const filter = document.getElementById("filter");
  const chips = [...document.querySelectorAll(".chips button")];
  const shown = document.getElementById("shown");
  const more = document.getElementById("more");
  const STEP = 300;
  let limit = more ? STEP : Infinity;

  // A case is a row of the table, or figures of which one is made when it is to be seen.
  const cases = [...table.tBodies].map((body) => ({ number: +body.id.slice(1), body, ...body.dataset }));

  const SCALE = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, M: 1, G: 1e3, T: 1e6 };
  function size(text) {
    const [number, unit] = text.split(" ");
    return text === "" || text === "–" ? undefined : number * (SCALE[unit] ?? 1);
  }

  // What is sorted by is in the units of the rows' own: nanoseconds, and 10¹² of a rate.
  function rate(text) {
    const found = size(text);
    return found === undefined ? undefined : found / 1e6;
  }

  function unfold(data) {
    const full = new Set(cases.map((one) => one.number));
    let number = -1;
    let before = "";
    for (const [common, rest, word, base, head, change, ratio, flops, bytes] of data.rows) {
      do number += 1; while (full.has(number));
      const id = before.slice(0, common) + rest;
      before = id;
      cases.push({
        number, id, word: data.words[word][0], tone: data.words[word][1],
        texts: [base, head, change, flops, bytes],
        base: size(base), head: size(head), ratio: ratio ?? undefined,
        tflops: rate(flops), gbps: size(bytes),
      });
    }
  }

  function cell(row, text, names) {
    const made = row.insertCell();
    made.className = names;
    made.textContent = text;
    return made;
  }

  function bodyOf(one) {
    if (one.body) return one.body;
    const body = document.createElement("tbody");
    body.id = "c" + one.number;
    const row = body.insertRow();
    row.className = "row " + one.tone;
    const head = document.createElement("th");
    const id = document.createElement("span");
    id.className = "id";
    for (const part of one.id.split(/(?<=[,:])/)) id.append(part, document.createElement("wbr"));
    head.append(id);
    row.append(head);
    const word = document.createElement("span");
    word.className = "word " + one.tone;
    word.textContent = one.word;
    row.insertCell().append(word);
    const [base, time, change, flops, bytes] = one.texts.map((text) => text || "–");
    cell(row, base, "n wide cmp");
    cell(row, time, "n");
    cell(row, change, "n cmp");
    cell(row, "", "wide cmp");
    cell(row, "–", "n wide cmp");
    cell(row, flops, "n wide");
    cell(row, bytes, "n wide");
    one.body = body;
    return body;
  }

  function open(body, yes) {
    const button = body.querySelector(".open");
    if (!button) return;
    body.classList.toggle("opened", yes);
    button.setAttribute("aria-expanded", String(yes));
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
    const found = cases.filter((one) => {
      const text = (one.id + " " + one.word).toLowerCase();
      return words.every((word) => text.includes(word)) &&
        (allowed.length === 0 || allowed.includes(one.word));
    });
    const listed = found.slice(0, limit);
    for (const body of [...table.tBodies]) body.remove();
    table.append(...listed.map(bodyOf));
    if (more) more.hidden = listed.length === found.length;
    const all = listed.length === cases.length;
    const narrowed = found.length < cases.length && found.length > listed.length;
    const matching = narrowed ? ` (${found.length} match)` : "";
    shown.textContent = all ? "" : `${listed.length} of ${cases.length} shown${matching}`;
  }

  function anew() {
    if (more) limit = STEP;
    apply();
  }

  filter.addEventListener("input", anew);
  more?.addEventListener("click", () => {
    limit += STEP;
    apply();
  });
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      anew();
    });
  }

  const letters = new Intl.Collator("en", { numeric: true });
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
      cases.sort((a, b) => {
        const [x, y] = [a[key], b[key]];
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return sign * (text ? letters.compare(x, y) : x - y);
      });
      anew();
    });
  }

  function follow() {
    const number = /^#c(\d+)$/.exec(location.hash)?.[1];
    const one = number && cases.find((one) => one.number === +number);
    if (!one) return;
    const body = bodyOf(one);
    if (!body.isConnected) table.append(body);
    open(body, true);
    body.scrollIntoView();
  }
  addEventListener("hashchange", follow);
  const rest = document.getElementById("rest");
  if (rest) {
    unfold(JSON.parse(rest.textContent));
    apply();
  }
  follow();
})();
