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
        column ? el("td", { class: "n" }, page.text(text)) : el("th", { scope: "row", class: "id" }, page.text(text)))));
      const table = el("table", { class: "plain launches" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows));
      parts.push(el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `Launches of the ${side}` }, table));
    }
    if (page.text(counts)) parts.push(el("p", {}, page.text(counts)));
    return parts;
  }

  // Where a change of a time went: a row a line, each bar beginning where the last one ended.
  function account([change, lines]) {
    const rows = lines.map(([what, growth, from, width, longer]) => el("tr", {},
      el("td", {}, page.text(what)), el("td", { class: "n" }, growth),
      el("td", { class: "fall" }, el("i", { class: longer ? "bad" : "good", style: `left:${from}%;width:${width}%` }))));
    return el("table", { class: "account" }, el("caption", {}, `${change} is`), el("tbody", {}, rows));
  }

  // What is found stands in a cell of its table; `wide` is how many pixels a figure may take.
  function of(one, wide) {
    const known = page.doc.details[one.place];
    if (!known) return el("p", { class: "muted" }, "Figures alone: everything about this case is in cases.csv and samples.csv, which --output csv=DIR writes.");
    const text = page.text;
    const box = el("div", { class: "known" });
    if (known.reason !== undefined) box.append(el("pre", { class: "reason" }, text(known.reason)));
    for (const one of known.accounts || []) box.append(account(one));
    if (known.findings) {
      box.append(el("ul", { class: "findings" }, known.findings.map(([cause, evidence, share]) =>
        el("li", {}, el("b", {}, text(cause)), `: ${text(evidence)}`, text(share) && el("span", { class: "muted" }, ` (${text(share)} of the change)`)))));
    }
    if (known.judged) {
      const [judged, confidence, stage, p, reachable] = known.judged.map(text);
      const sees = page.doc.sees[one.place];
      box.append(el("p", {}, `${page.doc.change[one.place]}, ${judged} at ${confidence}, ${stage}; p ${p}, where these invocations can reach ${reachable}; a change of ${sees} would have shown.`));
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
