"use strict";
// The page's document: every case, in the order of ids. Texts are shown as they are printed;
// numbers are read from them where something is sorted or drawn.
const page = (() => {
  const doc = JSON.parse(document.getElementById("data").textContent);
  const words = doc.words.map(([text, tone, sign]) => ({ text, tone, sign }));
  const allowed = new Set(doc.allowed);
  // Cases whose word is not that of their device time.
  const calm = new Set(doc.calm);
  const commands = new Map(doc.commands);

  let before = "";
  const cases = doc.ids.map(([common, rest], place) => {
    before = before.slice(0, common) + rest;
    return { place, id: before, word: words[doc.word[place]], allowed: allowed.has(place), calm: calm.has(place) };
  });
  for (const one of cases) one.searched = `${one.id} ${one.word.text}`.toLowerCase();
  const byId = new Map(cases.map((one) => [one.id, one]));

  const SCALE = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, M: 1e6, G: 1e9, T: 1e12, P: 1e15 };
  // A printed figure as a number: nanoseconds of a time, units of a rate.
  function size(text) {
    const [number, unit] = text.split(" ");
    const found = parseFloat(number) * (SCALE[unit] ?? 1);
    return Number.isFinite(found) ? found : undefined;
  }

  const peak = (one) => doc.peaks[doc.peak[one.place] ?? -1];
  const ratio = (of, to) => (of === undefined || !to ? undefined : of / to);

  const READ = {
    id: (one) => one.place,
    word: (one) => doc.word[one.place],
    ratio: (one) => doc.ratio[one.place] ? doc.ratio[one.place][0] ?? undefined : undefined,
    sees: (one) => size(doc.sees[one.place]),
    base: (one) => size(doc.base[one.place]),
    head: (one) => size(doc.head[one.place]),
    flops: (one) => size(doc.flops[one.place]),
    bytes: (one) => size(doc.bytes[one.place]),
    // Of what the device was measured to reach; 1 is all of it.
    share: (one) => ratio(column("flops")[one.place], peak(one)?.flops),
    // Operations for each byte that any implementation must move.
    intensity: (one) => doc.intensity[one.place] || undefined,
  };
  const columns = new Map();
  // The numbers of a column, by place; read when first asked for.
  function column(key) {
    if (!columns.has(key)) columns.set(key, cases.map(READ[key]));
    return columns.get(key);
  }

  // Ids have letters that a link need not hide.
  function encoded(text) {
    return encodeURIComponent(text).replace(/%(2C|3A|2F|40|3D)/g, decodeURIComponent)
      .replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  }

  return {
    doc, words, cases, byId, column, encoded, peak,
    text: (place) => doc.strings[place],
    command: (one) => commands.get(one.place) ?? doc.command + one.id,
  };
})();
// Elements and still figures. Text goes into text nodes alone, so that no name is markup.
const draw = (() => {
  function put(parent, children) {
    for (const child of children.flat()) if (child !== undefined && child !== null) parent.append(child);
    return parent;
  }

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(key, value);
    return put(made, children);
  }

  // The name of SVG's elements, which nothing fetches; a page is held to have no address in it.
  const SVG = ["http:", "", "www.w3.org", "2000", "svg"].join("/");
  function shape(name, attributes = {}, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return put(made, children);
  }

  // An id with leave to break a line after its separators.
  function id(text) {
    const parts = text.split(/(?<=[,:])/).flatMap((part) => [part, element("wbr")]);
    return element("span", { class: "id", dir: "ltr" }, parts);
  }

  function word(one) {
    const sign = element("span", { class: "sign", "aria-hidden": "true" }, one.word.sign);
    return element("span", { class: `word ${one.word.tone}` }, sign, ` ${one.word.text}`);
  }

  const digits = (value) => String(+value.toPrecision(3));
  // Labels of an axis, in three digits: `118 µs`.
  function time(ns) {
    if (ns === 0) return "0";
    for (const [unit, of] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) if (ns >= of) return `${digits(ns / of)} ${unit}`;
    return `${digits(ns)} ns`;
  }
  function rate(value) {
    for (const [unit, of] of [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6]]) if (value >= of) return `${digits(value / of)} ${unit}`;
    return digits(value);
  }

  // All whiskers have one scale, three thresholds either way by logarithm.
  function whisker(one, judged) {
    const [ratio, low, high] = page.doc.ratio[one.place] || [];
    if (ratio === undefined || !(low > 0)) return undefined;
    const half = 3 * Math.log1p(page.doc.threshold);
    const at = (value) => Math.min(100, Math.max(0, 50 + 50 * Math.log(value) / half));
    const called = one.calm ? "calm" : one.word.tone;
    const tone = called === "bad" && ratio > 1 ? " bad" : called === "good" && ratio < 1 ? " good" : "";
    const beyond = Math.abs(Math.log(ratio)) > half ? " beyond" : "";
    const mark = (name, style) => element("i", { class: name, style });
    return element("span", { class: `whisker${tone}${beyond}`, role: "img", "aria-label": judged || "interval" },
      mark("band", `left:${50 - 50 / 3}%;width:${100 / 3}%`), mark("one"),
      mark("reach", `left:${at(low)}%;width:${Math.max(0.5, at(high) - at(low))}%`), mark("at", `left:${at(ratio)}%`));
  }

  const middle = (values) => {
    const sorted = [...values].sort((a, b) => a - b);
    const half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };

  // Round numbers within a range: 1, 2 or 5 of a power of ten apart.
  function ticks(low, high, most) {
    const rough = (high - low) / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((part) => part * power).find((part) => part >= rough);
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high && found.length < 50; at += step) found.push(at);
    return found;
  }

  // The samples of a case, a lane an invocation; of a stored base there are medians alone. The axis is
  // cut off far above most samples, so that one hiccup does not flatten all others.
  function strip(one, document, wide) {
    const [least, step, ...sides] = document;
    const lanes = sides.flatMap((side, which) => side.filter((values) => values.length).map((values, number) => {
      const times = values.map((value) => least + step * value);
      return { side: ["base", "head"][which], name: String(number + 1), times, median: middle(times) };
    }));
    const medians = lanes.map((lane) => lane.median);
    const sorted = lanes.flatMap((lane) => lane.times).sort((a, b) => a - b);
    const most = sorted[Math.floor((sorted.length - 1) * 0.95)];
    const [first, last] = [sorted[0], sorted[sorted.length - 1]];
    const high = Math.max(last > 2 * most ? 1.25 * most : last, ...medians);
    const logarithmic = first > 0 && high > 4 * first;
    const of = logarithmic ? Math.log : (value) => value;
    const room = (of(high) - of(first)) * 0.06 || Math.abs(of(high)) * 0.01 || 1;
    const [from, to] = [of(first) - room, of(high) + room];
    const [width, height, left, top, bottom] = [Math.max(260, Math.min(760, wide)), 200, 72, 18, 156];
    const y = (value) => bottom - (bottom - top) * (Math.min(to, of(value)) - from) / (to - from);
    const marks = logarithmic
      ? ticks(from / Math.LN10, to / Math.LN10, 4).map((power) => 10 ** power)
      : ticks(Math.max(0, from), to, 4);
    const text = (content, x, at, anchor, ink = "muted") => shape("text",
      { fill: `var(--${ink})`, x, y: at, "font-size": 11, "text-anchor": anchor, "dominant-baseline": "middle" }, content);
    const parts = marks.flatMap((mark) => [
      shape("path", { stroke: "var(--line)", d: `M${left} ${y(mark)}H${width - 8}` }),
      text(time(mark), left - 8, y(mark), "end"),
    ]);
    const breadth = (width - 8 - left) / lanes.length;
    const every = Math.max(1, Math.ceil(26 / breadth));
    lanes.forEach(({ side, name, times, median }, number) => {
      const at = left + breadth * number;
      const across = (k) => at + breadth * (0.12 + 0.76 * (k + 0.5) / times.length);
      // Samples are many: where they overlap, they darken.
      parts.push(shape("path", {
        stroke: `var(--${side})`, "stroke-width": 4, "stroke-opacity": 0.62, "stroke-linecap": "round",
        d: times.map((value, k) => `M${across(k).toFixed(1)} ${y(value).toFixed(1)}h0`).join(""),
      }));
      parts.push(shape("path", { stroke: "var(--text)", "stroke-width": 2, d: `M${at + 3} ${y(median)}H${at + Math.max(4, breadth - 3)}` }));
      if (name === "1") parts.push(text(side, at + 2, bottom + 32, "start", side));
      if ((+name - 1) % every === 0) parts.push(text(name, at + breadth / 2, bottom + 14, "middle"));
    });
    parts.push(text("invocation; bar: median", width - 8, bottom + 32, "end"));
    const counts = ["base", "head"].map((side) => [side, lanes.filter((lane) => lane.side === side).length]);
    const about = counts.filter(([, count]) => count).map(([side, count]) => `${count} invocations of the ${side}`);
    const label = `Samples of ${one.id}: ${about.join(", ")}, from ${time(first)} to ${time(last)}`;
    return shape("svg", { class: "plot strip", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, parts);
  }

  return { element, id, word, time, rate, digits, whisker, strip };
})();
// All that is known of a case, made when it is opened.
const details = (() => {
  const { element: el } = draw;
  const HEADS = [["kernel"], ["grid"], ["blocks"], ["SMs", "Multiprocessors that get a block"],
    ["a SM", "Blocks that a multiprocessor holds at once"], ["waves"], ["block"], ["registers"], ["shared"]];

  function call(side, place) {
    const [launches, counts] = page.doc.calls[place];
    const parts = [el("p", { class: "sub" }, `What one call does: ${side}`)];
    if (launches.length) {
      const heads = HEADS.map(([name, title], column) => el("th", { scope: "col", class: column ? "n" : undefined, title }, name));
      const rows = launches.map((launch) => el("tr", {}, launch.map((text, column) =>
        column ? el("td", { class: "n" }, page.text(text)) : el("th", { scope: "row", class: "id" }, el("span", { class: "name", title: page.text(text) }, page.text(text))))));
      const table = el("table", { class: "plain launches" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows));
      parts.push(el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Launches of the ${side}` }, table));
    }
    if (page.text(counts)) parts.push(el("p", {}, page.text(counts)));
    return parts;
  }

  // What is found stands in a cell of its table; `wide` is how many pixels a figure may take.
  function of(one, wide) {
    const known = page.doc.details[one.place];
    if (!known) return el("p", { class: "muted" }, "Figures alone: everything about this case is in cases.csv and samples.csv, which --output csv=DIR writes.");
    const text = page.text;
    const box = el("div", { class: "known" });
    if (known.reason !== undefined) box.append(el("pre", { class: "reason" }, text(known.reason)));
    for (const one of known.accounts || []) box.append(el("p", {}, text(one)));
    if (known.findings) {
      box.append(el("ul", { class: "findings" }, known.findings.map(([cause, evidence, share]) =>
        el("li", {}, el("b", {}, text(cause)), `: ${text(evidence)}`, text(share) && el("span", { class: "muted" }, ` (${text(share)} of the change)`)))));
    }
    if (known.judged) {
      const [interval, how] = known.judged.map(text);
      const about = interval ? ` ${interval}, a 90 % interval,` : "";
      box.append(el("p", {}, `Device time ${page.doc.change[one.place]}${about} by ${how}.`));
    }
    if (known.samples) box.append(el("figure", {}, draw.strip(one, known.samples, wide)));
    if (known.facts) {
      box.append(el("dl", { class: "facts" }, known.facts.map(([name, value, differs]) =>
        el("div", {}, el("dt", {}, text(name)), el("dd", { class: differs ? "differs" : undefined }, text(value))))));
    }
    if (known.changes) {
      box.append(el("p", { class: "sub" }, "What changed of it"), el("ul", { class: "findings" }, known.changes.map((change) => el("li", {}, text(change)))));
    }
    const same = known.head !== undefined && known.head === known.base;
    if (same) box.append(...call("head and base alike", known.head));
    else for (const side of ["head", "base"]) if (known[side] !== undefined) box.append(...call(side, known[side]));
    if (known.log !== undefined) box.append(el("p", { class: "sub" }, "The worker's last lines"), el("pre", { class: "reason" }, text(known.log)));
    box.append(el("pre", { class: "command", title: "Measures this case again" }, page.command(one)));
    return box;
  }

  return { of };
})();
