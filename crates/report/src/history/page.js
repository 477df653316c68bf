"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const [cards, filter, sort, across, shown, more] =
    ["cards", "filter", "sort", "across", "shown", "more"].map((id) => document.getElementById(id));
  const chips = [...document.querySelectorAll(".chips button")];
  const STEP = 100;
  const RECENT = 100;
  const SPACE = "http://www.w3.org/2000/svg";
  let limit = STEP;

  const runs = data.runs.map(([at, label, revision, link]) => ({ at, label, revision, link }));
  const day = (at) => new Date(at * 1000).toISOString().slice(0, 10);

  let before = "";
  const cases = data.cases.map((raw) => {
    const id = before.slice(0, raw.i[0]) + raw.i[1];
    before = id;
    const steps = raw.t.map(([run, from, to, ratio, told]) => ({ run, from, to, ratio, told, size: Math.log(ratio) }));
    const recent = steps.filter((step) => runs[step.run].at >= data.since).map((step) => step.size);
    const creep = raw.c === null ? 0 : Math.log(raw.c);
    return {
      raw, id, steps, number: raw.n, lost: raw.w, creeping: raw.c !== null, changed: recent.length > 0,
      keys: {
        changed: Math.max(creep, -1e9, ...recent), faster: -Math.min(creep, 1e9, ...recent),
        reference: raw.s ?? -1, level: raw.m ?? -1,
      },
    };
  });

  function digits(value) {
    const size = Math.abs(value);
    return size < 9.995 ? value.toFixed(2) : size < 999.95 ? value.toFixed(1) : value.toFixed(0);
  }

  function time(ns) {
    const [scale, unit] = ns < 999.95 ? [1, "ns"] : ns < 999.95e3 ? [1e3, "µs"] : ns < 999.95e6 ? [1e6, "ms"] : [1e9, "s"];
    return digits(ns / scale) + " " + unit;
  }

  function change(ratio) {
    if (ratio >= 1.9995) return digits(ratio) + "x slower";
    if (ratio <= 0.5) return digits(1 / ratio) + "x faster";
    const share = (100 * (ratio - 1)).toFixed(1);
    return +share === 0 ? "0.0 %" : (+share > 0 ? "+" : "") + share + " %";
  }

  // Places of runs that have a time, and the times, made when they are needed first.
  function points(one) {
    one.points ??= one.raw.v.split(" ").flatMap((text, run) =>
      text === "" ? [] : [{ run, ns: one.raw.m * (1 + text / 1e4) }]);
    return one.points;
  }

  function element(name, attributes, parent, text) {
    const made = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }

  const FRAME = { left: 4, right: 62, top: 8, bottom: 18 };

  function draw(one) {
    const svg = one.svg;
    const width = svg.clientWidth;
    const height = svg.clientHeight;
    const first = across.value === "recent" ? Math.max(0, runs.length - RECENT) : 0;
    const all = points(one).filter((point) => point.run >= first);
    const steps = one.steps.filter((step) => step.run > first);
    if (!width) return;
    one.place = { all };
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    if (all.length === 0) {
      element("text", { x: FRAME.left, y: height / 2 }, svg, "no time in any of these runs");
      one.drawn = width + across.value;
      return;
    }
    const sorted = all.map((point) => point.ns).sort((a, b) => a - b);
    const levels = [one.raw.r, ...steps.flatMap((step) => [step.from, step.to])].filter((ns) => ns);
    // A few wild runs must not flatten all others: they are drawn at the edge.
    const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
    const room = 3 * (at(0.9) - at(0.1)) || 0.02 * at(0.5);
    let low = Math.min(...levels, Math.max(sorted[0], at(0.1) - room));
    let high = Math.max(...levels, Math.min(sorted[sorted.length - 1], at(0.9) + room));
    const least = 0.03 * at(0.5);
    if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
    const last = runs.length - 1;
    const span = runs[last].at - runs[0].at;
    const part = (run) => across.value === "date" && span > 0
      ? (runs[run].at - runs[0].at) / span : last > first ? (run - first) / (last - first) : 0.5;
    const inner = width - FRAME.left - FRAME.right;
    const x = (run) => FRAME.left + 3 + part(run) * (inner - 6);
    const y = (ns) => {
      const share = Math.min(1, Math.max(0, (ns - low) / (high - low)));
      return height - FRAME.bottom - 3 - share * (height - FRAME.top - FRAME.bottom - 6);
    };
    one.place = { x, y, all };
    const right = FRAME.left + inner;
    const floor = height - FRAME.bottom;
    element("path", { class: "frame", d: `M${FRAME.left} ${floor}H${right}` }, svg);
    if (one.raw.r) {
      element("path", { class: "reference", d: `M${FRAME.left} ${y(one.raw.r)}H${right}` }, svg);
    }
    const marks = all.map((point) => `M${x(point.run).toFixed(1)} ${y(point.ns).toFixed(1)}h0`).join("");
    element("path", { class: all.length > 150 ? "dots many" : "dots", d: marks }, svg);
    let from = all[0].run;
    let line = "";
    steps.forEach((step, number) => {
      const level = number === 0 ? step.from : steps[number - 1].to;
      line += `M${x(from)} ${y(level)}H${x(step.run)}`;
      from = step.run;
    });
    if (steps.length > 0) {
      line += `M${x(from)} ${y(steps[steps.length - 1].to)}H${x(all[all.length - 1].run)}`;
      element("path", { class: "level", d: line }, svg);
    }
    for (const step of steps) {
      const mark = element("path", {
        class: "step " + (step.size > 0 ? "bad" : "good"), d: `M${x(step.run)} ${FRAME.top - 6}V${floor}`,
      }, svg);
      element("title", {}, mark, step.told);
    }
    element("text", { x: right + 4, y: y(high) + 4 }, svg, time(high));
    element("text", { x: right + 4, y: y(low) + 4 }, svg, time(low));
    element("text", { x: FRAME.left, y: height - 4 }, svg, day(runs[first].at));
    element("text", { x: right, y: height - 4, "text-anchor": "end" }, svg, day(runs[last].at));
    one.drawn = width + across.value;
    if (one.at !== undefined) point(one, one.at);
  }

  // Shows the run at a place of those that have a time.
  function point(one, at) {
    if (!one.place?.x) return;
    one.at = Math.max(0, Math.min(at, one.place.all.length - 1));
    const { run, ns } = one.place.all[one.at];
    one.svg.querySelectorAll(".hair, .here").forEach((old) => old.remove());
    const x = one.place.x(run);
    element("path", { class: "hair", d: `M${x} ${FRAME.top}V${one.svg.clientHeight - FRAME.bottom}` }, one.svg);
    element("circle", { class: "here", cx: x, cy: one.place.y(ns), r: 4 }, one.svg);
    const parts = [day(runs[run].at), time(ns)];
    if (one.raw.r) parts.push(change(ns / one.raw.r));
    if (runs[run].revision) parts.push(runs[run].revision);
    const step = one.steps.find((step) => step.run === run);
    if (step) parts.push("changed here");
    one.readout.textContent = parts.join(" · ") + " · ";
    const label = document.createElement(runs[run].link ? "a" : "span");
    if (runs[run].link) label.href = runs[run].link;
    label.textContent = runs[run].label;
    one.readout.append(label);
  }

  function card(one) {
    if (one.card) return one.card;
    const made = document.createElement("article");
    made.className = "card";
    made.id = "c" + one.number;
    const name = document.createElement("h3");
    for (const part of one.id.split(/(?<=[,:])/)) name.append(part, document.createElement("wbr"));
    const figures = document.createElement("p");
    figures.className = "figures";
    const figure = (text, names) => {
      const span = document.createElement("span");
      span.textContent = text;
      span.className = names;
      figures.append(span);
    };
    if (one.raw.l) figure(one.raw.l + " now", "");
    if (one.raw.s) figure(change(one.raw.s) + " since the reference", "muted");
    for (const step of one.steps.slice(-2)) {
      figure(`${day(runs[step.run].at)}: ${change(step.ratio)}`, "word " + (step.size > 0 ? "bad" : "good"));
    }
    if (one.creeping) figure("creeps " + change(one.raw.c), "word doubtful");
    if (one.lost) figure("without a time now", "word bad");
    const told = one.steps.map((step) => step.told).join("; ") || "no change";
    one.svg = element("svg", {
      class: "chart", tabindex: 0, role: "img", "aria-label": `${one.id}: ${one.raw.l || "no time"} now; ${told}`,
    }, made);
    one.readout = document.createElement("p");
    one.readout.className = "readout";
    one.readout.setAttribute("aria-live", "polite");
    made.replaceChildren(name, figures, one.svg, one.readout);
    one.svg.addEventListener("pointermove", (event) => {
      if (!one.place?.x) return;
      const x = event.clientX - one.svg.getBoundingClientRect().left;
      const all = one.place.all;
      let best = 0;
      all.forEach((point, at) => {
        if (Math.abs(one.place.x(point.run) - x) < Math.abs(one.place.x(all[best].run) - x)) best = at;
      });
      point(one, best);
    });
    const open = () => {
      const chosen = one.at !== undefined && one.place?.all[one.at];
      const link = chosen && runs[chosen.run].link;
      if (link) location.href = link;
    };
    one.svg.addEventListener("click", open);
    one.svg.addEventListener("keydown", (event) => {
      if (one.drawn !== one.svg.clientWidth + across.value) draw(one);
      const end = (one.place?.all.length ?? 0) - 1;
      const now = one.at ?? end + 1;
      const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: end }[event.key];
      if (next !== undefined) {
        event.preventDefault();
        point(one, next);
      } else if (event.key === "Enter") open();
    });
    made.of = one;
    one.card = made;
    return made;
  }

  // A chart is made when it comes near the screen, and again where its width is another.
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      target.of.near = isIntersecting;
      if (isIntersecting && target.of.drawn !== target.of.svg.clientWidth + across.value) draw(target.of);
    }
  }, { rootMargin: "400px" });

  function again() {
    for (const { of } of cards.children) if (of.near) draw(of);
  }
  addEventListener("resize", again);

  const letters = new Intl.Collator("en", { numeric: true });

  function apply() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kinds = chips.filter((chip) => chip.getAttribute("aria-pressed") === "true").map((chip) => chip.dataset.kind);
    const found = cases.filter((one) => {
      const text = one.id.toLowerCase();
      return words.every((word) => text.includes(word)) &&
        (kinds.length === 0 || kinds.some((kind) => one[kind]));
    });
    const key = sort.value;
    if (key === "id") found.sort((a, b) => letters.compare(a.id, b.id));
    else found.sort((a, b) => b.keys[key] - a.keys[key] || a.number - b.number);
    const listed = found.slice(0, limit);
    near.disconnect();
    cards.replaceChildren(...listed.map(card));
    for (const made of cards.children) near.observe(made);
    more.hidden = listed.length === found.length;
    const some = found.length < cases.length ? `${found.length} of ${cases.length} match` : `${cases.length} cases`;
    shown.textContent = listed.length < found.length ? `${some}, ${listed.length} shown` : some;
  }

  function anew() {
    limit = STEP;
    apply();
  }
  filter.addEventListener("input", anew);
  sort.addEventListener("change", anew);
  across.addEventListener("change", () => {
    for (const { of } of cards.children) {
      of.drawn = undefined;
      of.at = undefined;
      of.readout.textContent = "";
    }
    again();
  });
  more.addEventListener("click", () => {
    limit += STEP;
    apply();
  });
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      anew();
    });
  }

  function follow() {
    const number = /^#c(\d+)$/.exec(location.hash)?.[1];
    const one = number && cases.find((one) => one.number === +number);
    if (!one) return;
    const made = card(one);
    if (!made.isConnected) {
      cards.prepend(made);
      near.observe(made);
    }
    made.scrollIntoView();
  }
  addEventListener("hashchange", follow);
  apply();
  follow();
})();
