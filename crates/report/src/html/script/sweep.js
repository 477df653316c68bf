// Times and rates against an axis, a line a variant; what the other axes are is chosen.
const sweep = (() => {
  const explore = document.getElementById("explore");
  if (!explore || typeof uPlot === "undefined") return undefined;
  const { element: el } = draw;
  const { doc, cases } = page;
  const axis = (name) => doc.axes.find((of) => of.name === name);
  const whole = (text) => (/^\d+$/.test(text) ? +text : undefined);
  const PRODUCT = "batch × heads";

  // An axis to plot against: its number of each case, and the axes that it is made of.
  function along(name, of, made) {
    const several = new Set(of.filter((value) => value > 0)).size >= 3;
    return several ? [{ name, of, made }] : [];
  }
  const numbers = (of) => of && of.of.map((value) => (value === null ? undefined : whole(of.values[value])));
  const called = (of) => (of.also.length ? `${of.name} (with ${of.also.join(", ")})` : of.name);
  const choices = doc.axes.flatMap((of) => along(called(of), numbers(of), [of.name]));
  // A product of axes with which others change would be a sweep of those.
  const alone = ["batch", "heads"].every((name) => axis(name) && !axis(name).also.length);
  const [batch, heads] = ["batch", "heads"].map((name) => numbers(axis(name)));
  if (batch && heads && alone) choices.push(...along(PRODUCT, batch.map((value, place) => value * heads[place]), ["batch", "heads"]));
  // Rates against operations for each byte, under the roof that the device was measured to have.
  const ROOF = "FLOP for each byte moved";
  if (doc.peaks.some((peak) => peak.flops && peak.bytes)) {
    // No two cases at one place, or one would hide the other.
    const of = page.column("intensity").map((value, place) => value && value * (1 + place * 1e-9));
    const made = doc.axes.map((one) => one.name).filter((name) => name !== "dtype");
    choices.push(...along(ROOF, of, made).map((choice) => ({ ...choice, roof: true })));
  }
  if (!choices.length) {
    explore.hidden = true;
    return undefined;
  }
  // Length is what one asks for first.
  choices.sort((a, b) => b.name.startsWith("seq") - a.name.startsWith("seq"));

  const YS = [
    { name: "time", of: "head", base: "base", print: draw.time },
    { name: "FLOP/s", of: "flops", print: draw.rate },
  ];
  const percent = (value) => `${draw.digits(100 * value)} %`;
  if (doc.peaks.some((peak) => peak.flops)) YS.push({ name: "share of the measured peak", of: "share", print: percent });
  // A line is a variant in an environment.
  const [variant, environment] = ["variant", "environment"].map(axis);
  const chosen = { x: choices[0], y: YS[0], fixed: new Map() };
  const controls = document.getElementById("sweep-controls");
  const target = document.getElementById("sweep-plot");
  let plot;

  const others = () => doc.axes.filter((of) => of !== variant && of !== environment && !chosen.x.made.includes(of.name));

  // The others as most of the line's points have them; gives how many these are.
  function usual() {
    const points = new Map();
    for (const one of cases) {
      if (!(chosen.x.of[one.place] > 0) || page.column(chosen.y.of)[one.place] === undefined) continue;
      const key = others().map((of) => of.of[one.place]).join(",");
      if (!points.has(key)) points.set(key, new Set());
      points.get(key).add(chosen.x.of[one.place]);
    }
    const [most, found] = [...points].sort((a, b) => b[1].size - a[1].size)[0] ?? ["", new Set()];
    const values = most.split(",");
    chosen.fixed = new Map(others().map((of, number) => [of.name, values[number] === "" ? null : +values[number]]));
    return found.size;
  }

  // An axis that never varies alone has no line: lengths may come with other heads each.
  const lined = choices.filter((choice) => {
    chosen.x = choice;
    return usual() > 1;
  });
  if (!lined.length) {
    explore.hidden = true;
    return undefined;
  }
  choices.splice(0, choices.length, ...lined);
  chosen.x = choices[0];

  function select(name, options, value, change) {
    const made = el("select", {}, options.map(([text, key]) => el("option", { value: String(key) }, text)));
    made.value = String(value);
    made.addEventListener("change", () => change(made.value));
    return el("label", {}, `${name} `, made);
  }

  function changed() {
    choose();
    show();
    table?.keep();
  }

  function choose() {
    const x = select("against", choices.map((of, number) => [of.name, number]), choices.indexOf(chosen.x), (value) => {
      chosen.x = choices[+value];
      if (chosen.x.roof) chosen.y = YS[1];
      usual();
      changed();
    });
    const y = select("of", YS.map((of, number) => [of.name, number]), YS.indexOf(chosen.y), (value) => {
      chosen.y = YS[+value];
      changed();
    });
    const fixed = others().map((of) => select(of.name, of.values.map((value, number) => [value || "none", number]), chosen.fixed.get(of.name), (value) => {
      chosen.fixed.set(of.name, +value);
      changed();
    }));
    const had = document.activeElement?.closest("label")?.firstChild?.textContent;
    controls.replaceChildren(y, x, ...fixed);
    // Whoever chose by keyboard goes on from there.
    [...controls.children].find((label) => label.firstChild.textContent === had)?.querySelector("select").focus();
  }

  const colours = new Map();
  function lines() {
    colours.clear();
    const there = cases.filter((one) => chosen.x.of[one.place] > 0 &&
      others().every((of) => of.of[one.place] === chosen.fixed.get(of.name)));
    const xs = [...new Set(there.map((one) => chosen.x.of[one.place]))].sort((a, b) => a - b);
    const series = new Map();
    const add = (name, key, dashed) => {
      const values = page.column(key);
      for (const one of there) {
        const value = values[one.place];
        if (value === undefined || !name(one)) continue;
        const label = name(one) + (dashed ? ", base" : "");
        if (!colours.has(name(one))) colours.set(name(one), colours.size);
        if (!series.has(label)) series.set(label, { label, dashed, colour: colours.get(name(one)), ys: xs.map(() => null) });
        series.get(label).ys[xs.indexOf(chosen.x.of[one.place])] = value;
      }
    };
    // A case's id begins with both.
    const name = (one) => one.id.split(":")[0];
    add(name, chosen.y.of, false);
    if (chosen.y.base) add(name, chosen.y.base, true);
    // Cases of the roof are of one line each: what lies between two of them is no case.
    const found = [...series.values()].map((of) => ({ ...of, points: chosen.x.roof }));
    return chosen.x.roof && chosen.y.of === "flops" ? under(there, xs, found) : { xs, series: found };
  }

  // The same with the roofs of the devices of these cases: memory's slope up to where products
  // are the limit. Its corner and its ends have no case.
  function under(there, xs, series) {
    const peaks = [...new Set(there.map((one) => page.peak(one)))].filter((peak) => peak?.flops && peak.bytes);
    if (!xs.length || !peaks.length) return { xs, series };
    const ends = [xs[0] / 2, xs[xs.length - 1] * 2, ...peaks.flatMap((peak) => [peak.flops / peak.bytes / 8, peak.flops / peak.bytes])];
    const all = [...new Set([...xs, ...ends])].sort((a, b) => a - b);
    const spread = series.map((of) => ({ ...of, ys: all.map((x) => of.ys[xs.indexOf(x)] ?? null) }));
    const roofs = peaks.map((peak) => ({
      label: `roof: ${draw.rate(peak.flops)}FLOP/s, ${draw.rate(peak.bytes)}B/s`, roof: true,
      ys: all.map((x) => Math.min(peak.flops, peak.bytes * x)),
    }));
    return { xs: all, series: [...roofs, ...spread] };
  }

  // Marks of an axis by logarithms: 1, 2 and 5 of each power of ten.
  function round(_, __, low, high) {
    const found = [];
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
      for (const part of [1, 2, 5]) if (part * power >= low && part * power <= high) found.push(part * power);
    }
    return found;
  }

  function show() {
    const { xs, series } = lines();
    plot?.destroy();
    plot = undefined;
    if (!xs.length) {
      target.replaceChildren(el("p", { class: "muted" }, "No case is measured there."));
      return;
    }
    target.replaceChildren();
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const values = series.flatMap((of) => of.ys).filter((value) => value !== null);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const logarithmic = least > 0 && (most > 8 * least || series.some((of) => of.roof));
    const ink = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
    const y = logarithmic ? { distr: 3, range: [least / 1.3, most * 1.3] } : { range: [0, most * 1.08] };
    const many = xs.length > 1 && xs[xs.length - 1] > 4 * xs[0];
    plot = new uPlot({
      width: target.clientWidth, height: 340,
      scales: {
        x: many ? { time: false, distr: 3, log: 2, range: [xs[0] / 1.1, xs[xs.length - 1] * 1.1] } : { time: false },
        y,
      },
      axes: [
        { ...ink, label: chosen.x.name, ...(chosen.x.roof ? { splits: round, filter: (_, splits) => splits } : {
          splits: () => xs, filter: (_, splits) => splits }), space: 40,
          values: (_, splits) => splits.map((value, number) => (splits.length > 12 && number % Math.ceil(splits.length / 10) ? "" : value)) },
        { ...ink, label: `${chosen.y.name} of the head`, size: 76, ...(logarithmic ? { splits: round, filter: (_, splits) => splits } : {}),
          values: (_, splits) => splits.map((value) => (value === null ? "" : chosen.y.print(value))) },
      ],
      series: [
        { label: chosen.x.name, value: (_, value) => (value && chosen.x.roof ? draw.digits(value) : value) ?? "–" },
        ...series.map((of) => (of.roof ? {
          label: of.label, stroke: colour("muted"), width: 1.5, points: { show: false },
          value: (_, value) => (value ? draw.rate(value) : "–"),
        } : {
          ...(of.points ? { paths: () => null } : {}),
          label: of.label, stroke: colour(of.colour < 7 ? `k${of.colour}` : "muted"), width: of.dashed ? 1.5 : 2,
          dash: of.dashed ? [6, 4] : undefined, points: { show: true, size: of.dashed ? 4 : 7 }, spanGaps: true,
          value: (_, value) => (value === null || value === undefined ? "–" : chosen.y.print(value)),
        })),
      ],
    }, [xs, ...series.map((of) => of.ys)], target);
    for (const head of target.querySelectorAll("th")) head.setAttribute("scope", "row");
    target.setAttribute("role", "img");
    target.setAttribute("aria-label", `${chosen.y.name} against ${chosen.x.name}: ${series.map((of) => of.label).join(", ")}`);
  }

  usual();
  choose();
  // Drawn when it is first seen.
  explore.addEventListener("toggle", () => explore.open && !plot && show());
  new ResizeObserver(() => {
    if (plot && Math.abs(plot.width - target.clientWidth) > 1) plot.setSize({ width: target.clientWidth, height: 340 });
  }).observe(target);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot && show());
  const first = JSON.stringify(state());

  // What is chosen, for the address; empty as long as nobody chose.
  function state() {
    const fixed = others().map((of) => [`plot.${of.name}`, of.values[chosen.fixed.get(of.name)] ?? ""]);
    return [["plot", chosen.y.name], ["against", chosen.x.name], ...fixed];
  }

  // What an address says, as far as it is there to choose.
  function read(said) {
    const [x, y] = [choices.find((of) => of.name === said.get("against")), YS.find((of) => of.name === said.get("plot"))];
    if (!x && !y) return;
    Object.assign(chosen, { x: x ?? chosen.x, y: y ?? (x?.roof ? YS[1] : chosen.y) });
    usual();
    for (const of of others()) {
      const value = of.values.indexOf(said.get(`plot.${of.name}`));
      if (value >= 0) chosen.fixed.set(of.name, value);
    }
    choose();
    explore.open = true;
    show();
  }

  return { chosen, choices, show, read, kept: () => (JSON.stringify(state()) === first ? [] : state()) };
})();
