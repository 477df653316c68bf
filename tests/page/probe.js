"use strict";
// Put into a copy of a page by tests/page/main.rs: does what a reader does, and writes what it finds
// into the document as JSON. It waits for no clock; times are told, and nothing is made of them.
(async () => {
  const found = { errors: window.probeErrors, times: {} };
  const root = document.getElementById("table");
  const body = root?.tBodies[0];
  const rows = () => [...body.querySelectorAll("tr.row")];
  const ids = () => rows().map((row) => row.querySelector(".id").textContent);
  const frame = () => new Promise((done) => setTimeout(done, 0));
  const timed = (name, act) => {
    const from = performance.now();
    act();
    void root.offsetHeight;
    found.times[name] = Math.round(performance.now() - from);
  };
  // What reaches beyond the window and is in nothing that scrolls.
  const overflow = () => {
    const wide = document.documentElement.scrollWidth > innerWidth;
    const culprits = !wide ? [] : [...document.querySelectorAll("body *")].filter((element) =>
      element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".scroll, nav"));
    return { scrollWidth: document.documentElement.scrollWidth, innerWidth,
      culprits: culprits.slice(0, 3).map((element) => `${element.tagName}.${element.className}`) };
  };
  try {
    if (!root) {
      found.overflow = overflow();
      if (window.probeAxe) found.axe = await window.probeAxe();
      parent.postMessage(JSON.stringify(found), "*");
      return;
    }
    found.interactive = Math.round(performance.now());
    found.nodes = document.querySelectorAll("*").length;
    found.cases = page.cases.length;
    found.rows = rows().length;
    found.first = ids().slice(0, 5);
    found.ids = ids();
    found.words = rows().slice(0, 100).map((row) => row.querySelector(".word").textContent);
    found.signs = [...new Set([...document.querySelectorAll("#words .word")].map((word) => word.textContent.trim()[0]))];

    // Every row of the first page is opened in turn.
    found.closedTable = root.getBoundingClientRect().width;
    timed("open all in view", () => rows().forEach((row) => row.querySelector(".open").click()));
    found.opened = body.querySelectorAll("tr.detail").length;
    found.expanded = rows().every((row) => row.querySelector(".open").getAttribute("aria-expanded") === "true");
    found.openTable = root.getBoundingClientRect().width;
    // The columns that are seen fill the table.
    const first = [...rows()[0].cells].filter((cell) => cell.offsetParent).map((cell) => cell.getBoundingClientRect());
    found.filled = Math.max(...first.map((cell) => cell.right)) >= root.getBoundingClientRect().right - 2;
    found.verdictsInView = rows().every((row) => [...row.cells].filter((cell) => cell.offsetParent)
      .every((cell) => cell.getBoundingClientRect().right <= innerWidth + 1));
    found.names = rows().slice(0, 20).every((row) =>
      row.querySelector(".open").getAttribute("aria-label").includes(row.querySelector(".id").textContent));
    found.details = [...body.querySelectorAll("tr.detail")].slice(0, 3).map((row) => row.textContent).join("\n");
    found.figures = body.querySelectorAll("tr.detail svg.strip").length;
    found.injected = window.injected === true || document.querySelectorAll("img, #table script, #table iframe").length > 0;
    await frame();
    found.overflow = overflow();
    if (window.probeAxe) found.axe = await window.probeAxe();

    // Escape closes what has the focus, and the focus stays with its row.
    const inside = body.querySelector("tr.detail a");
    inside.focus();
    inside.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
    found.escaped = rows()[0].querySelector(".open").getAttribute("aria-expanded") === "false" &&
      document.activeElement === rows()[0].querySelector(".open");
    rows().forEach((row) => row.querySelector('.open[aria-expanded="true"]')?.click());
    found.closed = body.querySelectorAll("tr.detail").length;

    // Every column is sorted by, either way.
    found.unsorted = [];
    for (const head of root.tHead.querySelectorAll("th[data-key]")) {
      const key = head.dataset.key;
      for (const turn of ["first", "second"]) {
        timed(`sort by ${key}, ${turn}`, () => head.querySelector("button").click());
        const way = head.getAttribute("aria-sort") === "descending" ? -1 : 1;
        const values = rows().map((row) => page.column(key)[row.one.place]);
        const sorted = values.every((value, number) => number === 0 || value === undefined ||
          (values[number - 1] !== undefined && way * (value - values[number - 1]) >= 0));
        if (!sorted || !head.getAttribute("aria-sort")) found.unsorted.push(`${key} ${way}`);
      }
    }
    found.ariaSorts = root.querySelectorAll("[aria-sort]").length;
    found.ariaOnButtons = root.querySelectorAll("button[aria-sort]").length;
    found.scopes = [...document.querySelectorAll("th")].filter((th) => !th.hasAttribute("scope")).length;
    document.getElementById("reset").click();

    // Words of an id, a verdict and an axis narrow it, and the address keeps them.
    const filter = document.getElementById("filter");
    const wanted = page.cases[page.cases.length - 1].id;
    const asked = wanted.split(/[:,]/).join(" ");
    timed("filter", () => { filter.value = asked; filter.dispatchEvent(new Event("input")); });
    found.filtered = ids().includes(wanted);
    found.filteredAll = rows().every((row) => asked.toLowerCase().split(/\s+/).every((word) => row.one.searched.includes(word)));
    found.hash = location.hash;
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    const chip = document.querySelector("#words button");
    timed("show one verdict", () => chip.click());
    found.chip = { pressed: chip.getAttribute("aria-pressed"), all: rows().every((row) => row.one.word.text === chip.dataset.word), hash: location.hash };
    chip.click();
    const select = document.querySelector("#axes select");
    if (select) {
      select.value = "0";
      timed("choose an axis", () => select.dispatchEvent(new Event("change")));
      const axis = page.doc.axes[0];
      found.facet = { rows: rows().length, all: rows().every((row) => axis.of[row.one.place] === 0), hash: location.hash };
    }
    document.getElementById("reset").click();
    found.reset = { rows: rows().length, hash: location.hash };

    // A link opens its case, wherever that is in the table.
    location.hash = `#case=${page.encoded(wanted)}`;
    await new Promise((done) => setTimeout(done, 50));
    const target = rows().find((row) => row.one.id === wanted);
    found.linked = target?.querySelector(".open").getAttribute("aria-expanded") === "true";
    found.links = [...document.querySelectorAll('a[href^="#case="]')]
      .every((link) => page.byId.has(decodeURIComponent(link.getAttribute("href").slice(6))));
    found.sections = [...document.querySelectorAll("nav a:not([hidden])")].map((link) => {
      const section = document.querySelector(link.getAttribute("href"));
      return section && !section.hidden && section.textContent.trim().length > 40;
    });

    // The figure to explore is drawn when it is opened.
    if (typeof sweep !== "undefined" && sweep) {
      document.getElementById("explore").open = true;
      await new Promise((done) => setTimeout(done, 100));
      found.sweep = { canvas: document.querySelectorAll("#sweep-plot canvas").length, axes: sweep.choices.map((of) => of.name) };
      // The keys of lines have the lines' colours; the first is the axis.
      found.sweep.uncoloured = [...document.querySelectorAll("#sweep-plot .u-marker")].slice(1)
        .filter((key) => !/rgb|#/.test(key.style.border)).length;
      await frame();
      found.sweepOverflow = overflow();
      // What is plotted is kept in the address beside the filter, read from there, and left alone
      // by whoever goes to a section.
      document.getElementById("reset").click();
      filter.value = "d";
      filter.dispatchEvent(new Event("input"));
      const choose = (number, value) => {
        const of = document.querySelectorAll("#sweep-controls select")[number];
        of.value = String(value);
        of.dispatchEvent(new Event("change"));
      };
      choose(0, 1);
      const plotted = location.hash;
      document.querySelector('nav a[href="#cases"]').click();
      found.plotted = { hash: plotted, kept: location.hash === plotted && filter.value === "d",
        focused: document.activeElement?.id };
      choose(0, 0);
      found.unplotted = location.hash;
      location.hash = plotted;
      await new Promise((done) => setTimeout(done, 50));
      found.followed = sweep.chosen.y.name;
      document.getElementById("reset").click();
      const roofed = sweep.choices.findIndex((of) => of.roof);
      if (roofed >= 0) {
        choose(1, roofed);
        const legend = [...document.querySelectorAll("#sweep-plot .u-legend th")].map((th) => th.textContent);
        found.roof = { legend, y: sweep.chosen.y.name,
          above: page.cases.filter((one) => page.column("share")[one.place] > 1.05).map((one) => one.id) };
        await frame();
        found.roofOverflow = overflow();
      }
    }
  } catch (error) {
    found.errors.push(String(error.stack ?? error));
  }
  parent.postMessage(JSON.stringify(found), "*");
})();
