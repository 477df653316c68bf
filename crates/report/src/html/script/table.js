// The table: rows in view, filtered and sorted as the address says, and opened.
const table = (() => {
  const { element: el } = draw;
  const { doc, cases } = page;
  const at = (id) => document.getElementById(id);
  const [root, filter, more, shown] = ["table", "filter", "more", "shown"].map(at);
  if (!root) return undefined;
  const body = root.tBodies[0];
  const chips = [...document.querySelectorAll("#words button")];
  const heads = [...root.tHead.querySelectorAll("th[data-key]")];
  const STEP = 100;
  const axes = doc.axes.filter((axis) => axis.values.length <= 100).slice(0, 14);
  const state = { q: "", words: new Set(), at: new Map(), sort: "", open: new Set(), limit: STEP, pinned: undefined };

  const selects = axes.map((axis) => {
    const counts = new Array(axis.values.length).fill(0);
    for (const value of axis.of) if (value !== null) counts[value] += 1;
    const options = axis.values.map((value, place) => el("option", { value: String(place) }, `${value || "none"} (${counts[place]})`));
    const select = el("select", {}, el("option", { value: "" }, "any"), options);
    select.addEventListener("change", () => {
      if (select.value === "") state.at.delete(axis.name);
      else state.at.set(axis.name, +select.value);
      anew();
    });
    at("axes").append(el("label", {}, `${axis.name} `, select));
    return select;
  });

  function found() {
    const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const facets = axes.filter((axis) => state.at.has(axis.name)).map((axis) => [axis.of, state.at.get(axis.name)]);
    const matches = (one) => words.every((word) => one.searched.includes(word)) &&
      (state.words.size === 0 || state.words.has(one.word.text)) &&
      facets.every(([of, value]) => of[one.place] === value);
    const places = state.sort ? sorted() : doc.worst;
    return places.map((place) => cases[place]).filter(matches);
  }

  function sorted() {
    const down = state.sort.startsWith("-");
    const values = page.column(state.sort.replace("-", ""));
    const sign = down ? -1 : 1;
    const places = cases.map((one) => one.place);
    return places.sort((a, b) => {
      const [x, y] = [values[a], values[b]];
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined) || a - b;
      return sign * (x - y) || a - b;
    });
  }

  function row(one) {
    const opened = state.open.has(one);
    const cell = (content, name) => el("td", { class: name, role: "cell" }, content || "–");
    const known = doc.details[one.place];
    const judged = known && known.judged ? page.text(known.judged[0]) : "";
    const button = el("button", { type: "button", class: "open", "aria-expanded": String(opened), "aria-label": `Details of ${one.id}` });
    const made = el("tr", { class: `row ${one.word.tone}${opened ? " opened" : ""}`, role: "row" },
      el("th", { scope: "row", role: "rowheader" }, button, draw.id(one.id)),
      el("td", { role: "cell" }, draw.word(one), one.allowed ? el("span", { class: "muted" }, " allowed") : null),
      cell(doc.base[one.place], "n wide cmp"), cell(doc.head[one.place], "n"), cell(doc.change[one.place], "n cmp"),
      el("td", { class: "wide cmp", role: "cell" }, draw.whisker(one, judged)), cell(doc.sees[one.place], "n wide cmp"),
      cell(doc.flops[one.place], "n wide"), cell(doc.bytes[one.place], "n wide"));
    made.one = one;
    return opened ? [made, detail(one)] : [made];
  }

  // As many columns as are seen: one more would take its part of the width.
  const columns = () => [...root.tHead.rows[0].cells].filter((cell) => getComputedStyle(cell).display !== "none").length;

  function detail(one) {
    const wide = Math.min(root.clientWidth, innerWidth) - 40;
    const link = el("p", { class: "muted" }, el("a", { href: `#case=${page.encoded(one.id)}` }, "Link to this case"));
    return el("tr", { class: "detail", role: "row" }, el("td", { colspan: String(columns()), role: "cell" }, details.of(one, wide), link));
  }

  let listed = [];
  function apply() {
    const all = found();
    listed = all.slice(0, state.limit);
    // What a link asks for is seen, whatever else is.
    if (state.pinned && !listed.includes(state.pinned)) listed.unshift(state.pinned);
    body.replaceChildren(...listed.flatMap(row));
    more.hidden = all.length <= state.limit;
    more.textContent = `Show ${Math.min(STEP, all.length - state.limit)} more`;
    shown.textContent = all.length === cases.length ? `${Math.min(listed.length, all.length)} of ${all.length} shown`
      : `${Math.min(listed.length, all.length)} of ${all.length} that match shown, of ${cases.length}`;
    for (const head of heads) {
      const key = state.sort.replace("-", "");
      if (head.dataset.key !== key) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", state.sort.startsWith("-") ? "descending" : "ascending");
    }
  }

  // The address of what is seen. Nothing goes into the history: going back leaves the page.
  function keep() {
    const parts = [];
    const add = (key, value) => parts.push(`${page.encoded(key)}=${page.encoded(value)}`);
    if (state.q) add("q", state.q);
    if (state.words.size) add("word", [...state.words].join(","));
    for (const axis of axes) if (state.at.has(axis.name)) add(`at.${axis.name}`, axis.values[state.at.get(axis.name)]);
    if (state.sort) add("sort", state.sort);
    for (const [key, value] of sweep?.kept() ?? []) add(key, value);
    const last = [...state.open].pop();
    if (last) add("case", last.id);
    const hash = parts.length ? `#${parts.join("&")}` : "";
    if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname + location.search);
  }

  function read() {
    const hash = location.hash.slice(1);
    if (!hash.includes("=")) return false;
    const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
    const pairs = hash.split("&").map((pair) => {
      const cut = pair.indexOf("=");
      return [decoded(pair.slice(0, cut)), decoded(pair.slice(cut + 1))];
    });
    const said = new Map(pairs);
    state.q = said.get("q") ?? "";
    state.words = new Set((said.get("word") ?? "").split(",").filter((word) => page.words.some((of) => of.text === word)));
    const sort = said.get("sort") ?? "";
    state.sort = heads.some((head) => head.dataset.key === sort.replace(/^-/, "")) ? sort : "";
    state.at.clear();
    for (const axis of axes) {
      const value = axis.values.indexOf(said.get(`at.${axis.name}`));
      if (said.has(`at.${axis.name}`) && value >= 0) state.at.set(axis.name, value);
    }
    sweep?.read(said);
    state.limit = STEP;
    state.pinned = page.byId.get(said.get("case"));
    if (state.pinned) state.open.add(state.pinned);
    return true;
  }

  function reflect() {
    filter.value = state.q;
    for (const chip of chips) chip.setAttribute("aria-pressed", String(state.words.has(chip.dataset.word)));
    axes.forEach((axis, number) => { selects[number].value = state.at.has(axis.name) ? String(state.at.get(axis.name)) : ""; });
  }

  function rowOf(one) {
    return [...body.rows].find((of) => of.one === one);
  }

  function toggle(one, yes) {
    const made = rowOf(one);
    if (!made || state.open.has(one) === yes) return;
    made.classList.toggle("opened", yes);
    made.querySelector(".open").setAttribute("aria-expanded", String(yes));
    if (yes) {
      state.open.add(one);
      made.after(detail(one));
    } else {
      state.open.delete(one);
      made.nextElementSibling?.remove();
    }
    keep();
  }

  function anew() {
    state.limit = STEP;
    state.pinned = undefined;
    apply();
    keep();
  }

  function follow() {
    if (!read()) return;
    reflect();
    apply();
    if (state.pinned) rowOf(state.pinned)?.scrollIntoView();
    else at("cases").scrollIntoView();
  }

  body.addEventListener("click", (event) => {
    const made = event.target.closest("tr.row");
    // Whoever selects an id to copy it does not want the row to jump.
    const selects = !event.target.closest("button") && String(getSelection()) !== "";
    if (made && !selects) toggle(made.one, !state.open.has(made.one));
  });
  body.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const made = event.target.closest("tr.row") ?? event.target.closest("tr.detail")?.previousElementSibling;
    if (!made?.one || !state.open.has(made.one)) return;
    toggle(made.one, false);
    made.querySelector(".open").focus();
  });
  filter.addEventListener("input", () => { state.q = filter.value; anew(); });
  more.addEventListener("click", () => {
    const first = listed.length;
    state.limit += STEP;
    apply();
    rowOf(listed[first])?.querySelector(".open").focus();
  });
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      const word = chip.dataset.word;
      if (!state.words.delete(word)) state.words.add(word);
      reflect();
      anew();
    });
  }
  for (const head of heads) {
    head.querySelector("button").addEventListener("click", () => {
      const key = head.dataset.key;
      const text = key === "id" || key === "word";
      // Figures first the largest: what is slow is what one looks for.
      state.sort = state.sort === key ? `-${key}` : state.sort === `-${key}` ? key : text ? key : `-${key}`;
      anew();
    });
  }
  at("reset").addEventListener("click", () => {
    Object.assign(state, { q: "", words: new Set(), at: new Map(), sort: "" });
    reflect();
    anew();
  });
  addEventListener("hashchange", follow);
  addEventListener("resize", () => {
    const seen = columns();
    for (const cell of body.querySelectorAll(".detail > td")) cell.colSpan = seen;
  });
  if (read()) reflect();
  apply();
  if (state.pinned) rowOf(state.pinned)?.scrollIntoView();
  // The address keeps what is chosen, so a section is gone to without being put there.
  for (const link of document.querySelectorAll('nav a[href^="#"]')) {
    link.addEventListener("click", (event) => {
      const target = at(link.hash.slice(1));
      if (!target) return;
      event.preventDefault();
      target.scrollIntoView();
      target.setAttribute("tabindex", "-1");
      target.focus({ preventScroll: true });
    });
  }
  return { state, toggle, rowOf, keep };
})();
