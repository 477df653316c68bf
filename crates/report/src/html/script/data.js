"use strict";
// The page's document: every case, in the order of ids. Texts are shown as they are printed;
// numbers are read from them where something is sorted or drawn.
const page = (() => {
  const doc = JSON.parse(document.getElementById("data").textContent);
  const words = doc.words.map(([text, tone, sign]) => ({ text, tone, sign }));
  const allowed = new Set(doc.allowed);
  const commands = new Map(doc.commands);

  let before = "";
  const cases = doc.ids.map(([common, rest], place) => {
    before = before.slice(0, common) + rest;
    return { place, id: before, word: words[doc.word[place]], allowed: allowed.has(place) };
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
