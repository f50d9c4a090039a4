// Time and memory on a screen: the part of the time that is seen, where things stand, and how amounts are told.

const NANOSECONDS = { ns: 1, us: 1e3, ms: 1e6, s: 1e9 };
const TIME_STEPS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
const BYTE_STEPS = [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]];
const MARGIN = 0.04;

/** A part of the time that lies within 0 … whole and is at least one tick long; ends on whole ticks are kept. */
export function within(view, whole) {
  const span = Math.min(whole, Math.max(Math.min(1, whole), view.to - view.from));
  const from = Math.max(0, Math.min(view.from, whole - span));
  return { from, to: from + span };
}

/** The view `factor` times as long, with the moment `at` where it was. */
export function zoomed(view, at, factor, whole) {
  const span = Math.max(Math.min(1, whole), (view.to - view.from) * factor);
  const share = (at - view.from) / (view.to - view.from);
  const from = at - share * span;
  return within({ from, to: from + span }, whole);
}

/** The view a share of its length later, or earlier where it is negative. */
export function panned(view, share, whole) {
  const by = share * (view.to - view.from);
  return within({ from: view.from + by, to: view.to + by }, whole);
}

/** The view of a stretch of time with a little room around it. */
export function fitted(from, to, whole) {
  const room = Math.max(1, to - from) * MARGIN;
  return within({ from: from - room, to: to + room }, whole);
}

/** Round moments between the ends of the view, not nearer than so many pixels, each with its label. */
export function ticksOf(view, pixels, unit, apart = 90) {
  const [scale, name] = timeScale(view.to, unit);
  const least = ((view.to - view.from) / scale) * (apart / Math.max(1, pixels));
  let step = roundStep(least);
  if (!(unit in NANOSECONDS)) step = Math.max(1, step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let i = Math.abs(Math.ceil(view.from / scale / step - 1e-9)); i * step * scale <= view.to + 1e-9; i++) {
    found.push({ at: i * step * scale, label: grouped((i * step).toFixed(digits)) });
    if (found.length > 1000) break;
  }
  return { ticks: found, unit: name };
}

/** The least of 1, 2, 5, 10, 20 … that is not below a number. */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  for (const each of [1, 2, 5, 10]) if (each * power >= least * (1 - 1e-9)) return each * power;
  return 10 * power;
}

/** [ticks per unit, its name] in which numbers up to `largest` read well. */
export function timeScale(largest, unit) {
  if (!(unit in NANOSECONDS)) return [1, many(unit)];
  const [name, step] = stepOf(largest * NANOSECONDS[unit], TIME_STEPS);
  return [step / NANOSECONDS[unit], name];
}

/** A duration as people read it: three digits of a real unit, exact in steps. */
export function showTime(ticks, unit) {
  return unit in NANOSECONDS ? scaled(ticks * NANOSECONDS[unit], TIME_STEPS) : counted(ticks, unit);
}

/** A moment, written so finely that moments this far apart differ. */
export function showMoment(ticks, unit, apart) {
  if (!(unit in NANOSECONDS)) return counted(ticks, unit);
  const [scale, name] = timeScale(ticks || apart, unit);
  const digits = digitsFor(apart / scale);
  return `${grouped((ticks / scale).toFixed(digits))} ${name}`;
}

/** Digits after the point that tell three of a difference. */
function digitsFor(apart) {
  return Math.max(0, Math.min(9, 2 - Math.floor(Math.log10(Math.max(apart, 1e-9)))));
}

/** A stretch of time by its two ends, in one unit. */
export function showSpan(from, to, unit) {
  if (!(unit in NANOSECONDS)) return `${[from, to].map((tick) => grouped(String(tick))).join(" – ")} ${many(unit)}`;
  const [scale, name] = timeScale(to, unit);
  const digits = digitsFor((to - from) / scale);
  return `${[from, to].map((tick) => grouped((tick / scale).toFixed(digits))).join(" – ")} ${name}`;
}

/** An amount of memory as people read it. */
export function showMemory(amount, unit) {
  return unit === "B" ? scaled(amount, BYTE_STEPS) : counted(amount, unit);
}

/** Amounts of memory in one unit that is chosen for the largest: the short numbers, and the unit. */
export function memoryScale(largest, unit) {
  const [name, step] = unit === "B" ? stepOf(largest, BYTE_STEPS) : [many(unit), 1];
  return { unit: name, tell: (amount) => short(amount / step) };
}

/** A share in percent: one digit below ten, none above. */
export function percent(share) {
  return `${(100 * share).toFixed(1)}%`;
}

export function counted(amount, unit) {
  const number = grouped(Number.isInteger(amount) ? String(amount) : amount.toFixed(2).replace(/\.?0+$/, ""));
  return `${number} ${amount === 1 ? unit : many(unit)}`;
}

function many(unit) {
  const fixed = unit in NANOSECONDS || BYTE_STEPS.some(([name]) => name === unit);
  return unit.endsWith("s") || fixed ? unit : `${unit}${unit.endsWith("ch") ? "es" : "s"}`;
}

function stepOf(amount, steps) {
  return steps.find(([, step]) => Math.abs(amount) >= step) ?? steps[steps.length - 1];
}

function scaled(amount, steps) {
  const [name, step] = stepOf(amount, steps);
  return `${short(amount / step)} ${name}`;
}

/** Three significant digits, without an exponent. */
function short(number) {
  if (number === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(number)) + 1e-12));
  const text = number.toFixed(Math.min(9, digits));
  return grouped(text.includes(".") ? text.replace(/\.?0+$/, "") : text);
}

/** Digits in threes before the point. */
export function grouped(text) {
  const [whole, ...rest] = text.split(".");
  return [whole.replace(/\B(?=(\d{3})+(?!\d))/g, ","), ...rest].join(".");
}

/** Where lanes, memory and axes stand, from top to bottom, in a picture so wide, with the map of all the time or not. */
export function layoutOf(model, width, mapped = true) {
  const gutter = Math.round(Math.max(44, Math.min(118, width * 0.16)));
  const axis = mapped ? 38 : 8;
  const work = axis + 36;
  const workEnd = work + model.lanes.length * model.laneHeight;
  const memory = workEnd + (model.memoryHeight ? 30 : 0);
  const memoryEnd = memory + model.devices.length * model.memoryHeight;
  return {
    width, gutter, left: gutter, right: width - 10, map: mapped ? 8 : -30, mapHeight: 22, axis, work, workEnd, memory, memoryEnd,
    laneHeight: model.laneHeight, memoryHeight: model.memoryHeight, height: memoryEnd + 8, mapped,
  };
}

/** The moment at a pixel, and the pixel of a moment. */
export function momentAt(layout, view, x) {
  return view.from + ((x - layout.left) / Math.max(1, layout.right - layout.left)) * (view.to - view.from);
}

export function pixelOf(layout, view, tick) {
  return layout.left + ((tick - view.from) / (view.to - view.from)) * (layout.right - layout.left);
}

/** What part of the picture a point is in: {part, lane}; a lane of work, or one of memory. */
export function partAt(layout, x, y) {
  const lane = (top, height) => Math.max(0, Math.floor((y - top) / height));
  if (y < layout.map + layout.mapHeight + 3) return { part: "map", lane: -1 };
  if (x < layout.left) return { part: "names", lane: -1 };
  if (y < layout.work) return { part: "axis", lane: -1 };
  if (y < layout.workEnd) return { part: "work", lane: lane(layout.work, layout.laneHeight) };
  if (y >= layout.memory && y < layout.memoryEnd) return { part: "memory", lane: lane(layout.memory, layout.memoryHeight) };
  return { part: "between", lane: -1 };
}
