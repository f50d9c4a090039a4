// Time and memory on a screen: the visible time range, positions, and formats of amounts.

const NANOSECONDS = { ns: 1, us: 1e3, ms: 1e6, s: 1e9 };
const TIME_STEPS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
const BYTE_STEPS = [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]];
const MARGIN = 0.04;

/** Return a view limited to 0 … whole that is at least one tick long. Ends on whole ticks stay. */
export function within(view, whole) {
  const span = Math.min(whole, Math.max(Math.min(1, whole), view.to - view.from));
  const from = Math.max(0, Math.min(view.from, whole - span));
  return { from, to: from + span };
}

/** Return the view scaled by `factor` around the time `at`. */
export function zoomed(view, at, factor, whole) {
  const span = Math.max(Math.min(1, whole), (view.to - view.from) * factor);
  const share = (at - view.from) / (view.to - view.from);
  const from = at - share * span;
  return within({ from, to: from + span }, whole);
}

/** Return the view moved by a share of its length, later or (negative) earlier. */
export function panned(view, share, whole) {
  const by = share * (view.to - view.from);
  return within({ from: view.from + by, to: view.to + by }, whole);
}

/** Return the view of a time range with a small margin. */
export function fitted(from, to, whole) {
  const room = Math.max(1, to - from) * MARGIN;
  return within({ from: from - room, to: to + room }, whole);
}

/** Return round times in the view with their labels, at least a number of pixels apart. */
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

/** Return the least of 1, 2, 5, 10, 20 … that is not below a number. */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  for (const each of [1, 2, 5, 10]) if (each * power >= least * (1 - 1e-9)) return each * power;
  return 10 * power;
}

/** Return [ticks per unit, its name] for a unit that suits numbers up to `largest`. */
export function timeScale(largest, unit) {
  if (!(unit in NANOSECONDS)) return [1, many(unit)];
  const [name, step] = stepOf(largest * NANOSECONDS[unit], TIME_STEPS);
  return [step / NANOSECONDS[unit], name];
}

/** Return a duration as text: three digits of a real unit, or exact steps. */
export function showTime(ticks, unit) {
  return unit in NANOSECONDS ? scaled(ticks * NANOSECONDS[unit], TIME_STEPS) : counted(ticks, unit);
}

/** Return a time as text, with enough digits to tell times apart that differ by a given amount. */
export function showMoment(ticks, unit, apart) {
  if (!(unit in NANOSECONDS)) return counted(ticks, unit);
  const [scale, name] = timeScale(ticks || apart, unit);
  const digits = digitsFor(apart / scale);
  return `${grouped((ticks / scale).toFixed(digits))} ${name}`;
}

/** Return the number of digits after the point that show three digits of a difference. */
function digitsFor(apart) {
  return Math.max(0, Math.min(9, 2 - Math.floor(Math.log10(Math.max(apart, 1e-9)))));
}

/** Return the two ends of a time range in one unit. */
export function showSpan(from, to, unit) {
  if (!(unit in NANOSECONDS)) return `${[from, to].map((tick) => grouped(String(tick))).join(" – ")} ${many(unit)}`;
  const [scale, name] = timeScale(to, unit);
  const digits = digitsFor((to - from) / scale);
  return `${[from, to].map((tick) => grouped((tick / scale).toFixed(digits))).join(" – ")} ${name}`;
}

/** Return an amount of memory as text. */
export function showMemory(amount, unit) {
  return unit === "B" ? scaled(amount, BYTE_STEPS) : counted(amount, unit);
}

/** Return amounts of memory as short numbers in one unit, and the unit. */
export function memoryScale(largest, unit) {
  const [name, step] = unit === "B" ? stepOf(largest, BYTE_STEPS) : [many(unit), 1];
  return { unit: name, tell: (amount) => short(amount / step) };
}

/** Return a share in percent: one digit after the point below ten, none above. */
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

/** Return three significant digits, without an exponent. */
function short(number) {
  if (number === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(number)) + 1e-12));
  const text = number.toFixed(Math.min(9, digits));
  return grouped(text.includes(".") ? text.replace(/\.?0+$/, "") : text);
}

/** Group the digits before the point in threes. */
export function grouped(text) {
  const [whole, ...rest] = text.split(".");
  return [whole.replace(/\B(?=(\d{3})+(?!\d))/g, ","), ...rest].join(".");
}

/** Return the positions of lanes, memory and axes for a picture of a width, with or without the overview. */
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

/** Return the time at a pixel, and the pixel of a time. */
export function momentAt(layout, view, x) {
  return view.from + ((x - layout.left) / Math.max(1, layout.right - layout.left)) * (view.to - view.from);
}

export function pixelOf(layout, view, tick) {
  return layout.left + ((tick - view.from) / (view.to - view.from)) * (layout.right - layout.left);
}

/** Return the part of the picture at a point as {part, lane}: a work lane or a memory lane. */
export function partAt(layout, x, y) {
  const lane = (top, height) => Math.max(0, Math.floor((y - top) / height));
  if (y < layout.map + layout.mapHeight + 3) return { part: "map", lane: -1 };
  if (x < layout.left) return { part: "names", lane: -1 };
  if (y < layout.work) return { part: "axis", lane: -1 };
  if (y < layout.workEnd) return { part: "work", lane: lane(layout.work, layout.laneHeight) };
  if (y >= layout.memory && y < layout.memoryEnd) return { part: "memory", lane: lane(layout.memory, layout.memoryHeight) };
  return { part: "between", lane: -1 };
}
