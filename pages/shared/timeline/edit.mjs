// Changes of a plan or a schedule by hand: the meaning of a drag, what moves along, and why it may be refused.

import { below, memoryOf, mostHeld, nameOfRun, neighbours, rowOf, spansOf, upTo } from "./data.mjs";
import { momentAt, partAt, pixelOf, roundStep, showMemory, showMoment, showTime } from "./scale.mjs";

const GRIP_PIXELS = 6;
const MIN_GRIPPED_PIXELS = 18;
const MAX_NAMED = 6;

/**
 * Return what a drag of a run does: near its end it changes the duration of the block, elsewhere it moves its stage. In
 * a placement, whose `moves` come from the server, operators can move, but transfers cannot.
 */
export function gripAt(model, layout, view, row, x) {
  if (model.moves) return model.moves.of[model.block[row]] ? "move" : "";
  const [left, right] = [model.start[row], model.end[row]].map((tick) => pixelOf(layout, view, tick));
  return right - left >= MIN_GRIPPED_PIXELS && right - x <= GRIP_PIXELS ? "stretch" : "move";
}

/** Return the blocks that move along when a block leaves a device. */
export function carried(model, block, from, alone) {
  if (model.moves) return model.moves.along[block] ?? [];
  const along = (each, b) => !alone && model.stages[b] === model.stages[block] && each.devices.includes(from);
  return model.blocks.flatMap((each, b) => (b === block || along(each, b) ? [b] : []));
}

/** Return why a block cannot move from one device to another. Empty if it can. */
export function whyNot(model, block, from, to, alone) {
  if (model.moves) return model.moves.reasons[model.moves.of[block][to]];
  const there = carried(model, block, from, alone).find((b) => model.blocks[b].devices.includes(to));
  if (there !== undefined) return `${model.blocks[there].name} runs on ${model.devices[to].name} already`;
  const { memory } = model.blocks[block];
  const left = alone && memory ? carried(model, block, from, false).find((b) => b !== block && model.blocks[b].memory) : undefined;
  return left === undefined ? "" : `alone it cannot go: ${model.blocks[left].name} ${memory > 0 ? "releases what it holds" : "holds what it releases"}`;
}

/** Return the effect of a drop of the dragged block in a few words, and why it would be refused. */
export function holdOf(model, layout, view, { row, does, lane: from, alone }, x, to) {
  const block = model.block[row];
  if (does === "stretch") {
    const step = Math.max(1, roundStep((view.to - view.from) / (layout.right - layout.left)));
    const lasts = Math.max(1, Math.round((momentAt(layout, view, x) - model.start[row]) / step) * step);
    const was = model.blocks[block].duration;
    const says = `${showTime(lasts, model.timeUnit)} (was ${showTime(was, model.timeUnit)})`;
    return { blocks: [block], refused: "", says, change: lasts === was ? null : { does, block, duration: lasts }, lasts };
  }
  const blocks = carried(model, block, from, alone);
  const refused = to === from ? "" : whyNot(model, block, from, to, alone);
  const names = [...blocks.map((b) => model.blocks[b].name), ...(model.moves?.beside[block] ? [model.moves.beside[block]] : [])];
  const says = refused || `${inWords(names)} to ${model.devices[to].name}`;
  return { blocks, refused, says, change: refused || to === from ? null : { does, block, source: from, target: to, alone }, from, to };
}

function inWords(names) {
  return names.length > MAX_NAMED ? `${names.slice(0, MAX_NAMED).join(", ")} and ${names.length - MAX_NAMED} more` : names.join(", ");
}

/** Return the device whose capacity (its line or its number) is at a point, or -1. */
export function capacityAt(model, layout, places, x, y) {
  if (!model.stages || !layout.memoryHeight || y < layout.memory - GRIP_PIXELS || y >= layout.memoryEnd) return -1;
  const near = (d) => Math.abs(y - lineOf(model, places, d)) <= GRIP_PIXELS;
  const { part, lane } = partAt(layout, x, y);
  const at = Math.max(0, Math.floor((y - layout.memory) / layout.memoryHeight));
  if (part === "names") return at;
  return [lane, at, at + 1].find((d) => d >= 0 && d < model.devices.length && near(d)) ?? -1;
}

/** Return the height of a device's capacity. It is the top of its lane if it is unlimited or above the lane. */
function lineOf(model, places, d) {
  const top = places.y(d, places.floor(d) + places.top);
  return model.devices[d].capacity === null ? top : Math.max(top, places.y(d, model.devices[d].capacity));
}

/** Return the effect of a drop of a device's capacity. The amount follows the height, in round steps. */
export function holdCapacity(model, places, { lane: d, y: from }, y) {
  const { name, capacity, static: least } = model.devices[d];
  const shown = lineOf(model, places, d);
  const each = places.top / places.high;
  const step = Math.max(1, roundStep(each));
  const begin = places.floor(d) + (places.base(d) - shown) * each;
  const now = Math.max(0, Math.round((begin + (from - y) * each) / step) * step);
  const [tells, was] = [now, capacity].map((amount) => (amount === null ? "unlimited" : showMemory(amount, model.memoryUnit)));
  const refused = now < least ? `${name} holds ${showMemory(least, model.memoryUnit)} all the time, more than ${tells}` : "";
  const change = refused || now === capacity ? null : { does: "hold", target: d, capacity: now };
  return { blocks: [], ghosts: [], refused, says: refused || `${name}: at most ${tells} (was ${was})`, change, line: places.y(d, now) };
}

/** Return where the dragged runs are drawn, as [run, end, first lane, last lane]. */
export function ghosts(model, { blocks, lasts, from, to, refused }) {
  const found = [];
  for (let row = 0; row < model.count; row++) {
    const b = model.block[row];
    if (!blocks.includes(b)) continue;
    const devices = model.blocks[b].devices.map((d) => (d === from && !refused ? to : d)).sort((one, other) => one - other);
    for (const span of spansOf(devices)) found.push([row, lasts ? model.start[row] + lasts : model.end[row], span]);
  }
  return found;
}

/** Return the change of each button for the stage of a run. Null if a button does not apply. */
export function cutsOf(model, row) {
  if (row < 0) return {};
  const { stages, blocks, feeds } = model;
  const block = model.block[row];
  const stage = blocks.flatMap((_, b) => (stages[b] === stages[block] ? [b] : []));
  const kind = (b) => model.kinds[blocks[b].kind][0];
  const whole = stage.some((b) => kind(b) === "weight") ? undefined : stage.find((b) => kind(b) === "backward" && blocks[b].duration > 1);
  const alike = (one, other) => kind(one) === kind(other) && String(blocks[one].devices) === String(blocks[other].devices);
  const onwards = stage.filter((b) => kind(b) !== "backward" && kind(b) !== "weight");
  const next = onwards.flatMap((b) => feeds[b].filter(([after]) => stages[after] !== stages[b] && alike(b, after)).map(([after]) => [b, after]));
  return {
    split: whole === undefined ? null : { does: "split", block: whole },
    cut: stage.every((b) => blocks[b].duration > 1) ? { does: "cut", block } : null,
    merge: next.length ? { does: "merge", block: next[0][0], other: next[0][1] } : null,
  };
}

/**
 * Return the effect of a drop of a run. Over the middle of another run on its device, the two swap; elsewhere it gets a
 * new start. Also return where it could go while all others stay.
 */
export function holdRun(model, layout, view, { row, x: from, alone, places }, x, lane) {
  const at = momentAt(layout, view, x);
  const step = Math.max(1, roundStep((view.to - view.from) / (layout.right - layout.left)));
  const by = Math.round((at - momentAt(layout, view, from)) / step) * step;
  const start = Math.max(0, model.start[row] + by);
  const [block, micro_batch] = nameOfRun(model, row);
  const stay = alone ? ", all others stay" : "";
  const held = { blocks: [], run: [block, micro_batch], refused: "", places: places ?? placesOf(model, row) };
  const other = runUnder(model, row, at, lane);
  if (other >= 0) {
    const refused = comesFirst(model, row, other);
    const moves = swapped(model, row, other);
    const why = alone && !refused ? aloneWhy(model, moves) : "";
    const says = refused || `swaps places with ${called(model, other)}${stay}${why && `: ${why}`}`;
    const change = refused ? null : swapOf(model, row, other, alone);
    return { ...held, ghosts: moves.flatMap(([each, start]) => ghostsAt(model, each, start)), refused, says, warns: Boolean(why), change };
  }
  const tell = (tick) => showMoment(tick, model.timeUnit, Math.max(1, step));
  const why = alone ? aloneWhy(model, [[row, start]]) : "";
  const lands = alone ? start : landsAt(model, row, start);
  const says = alone ? `starts at ${tell(start)}, all others stay${why && `: ${why}`}` : `starts at ${tell(lands)}${lands === start ? "" : ", in its turn"}`;
  const elsewhere = lane >= 0 && !model.blocks[block].devices.includes(lane) ? " on its own device: Plan moves stages" : "";
  const change = by ? { does: "place", block, micro_batch, start, alone } : null;
  return { ...held, ghosts: ghostsAt(model, row, lands), says: says + elsewhere, warns: Boolean(why), change };
}

/**
 * Return the start of a run after a drop. The server orders runs by their middles and starts each as early as its devices
 * and inputs allow. Runs before both the old and the new place keep their starts.
 */
export function landsAt(model, row, drop) {
  const { count, block, microBatch, start, end } = model;
  const stay = Math.min(drop, start[row]);
  const turn = (each) => (each === row ? 2 * drop : start[each] + end[each]);
  const queue = new Queue((one, other) => turn(one) - turn(other) || microBatch[one] - microBatch[other] || block[one] - block[other]);
  const begins = Float64Array.from(start, (tick) => (tick < stay ? tick : 0));
  const waits = Int32Array.from(block, (b) => model.needs[b].length);
  const free = new Float64Array(model.lanes.length);
  for (let each = 0; each < count; each++) if (!waits[each]) queue.push(each);
  for (let each = queue.pop(); each !== undefined; each = queue.pop()) {
    const lanes = model.on[model.which[each]];
    for (const lane of lanes) begins[each] = Math.max(begins[each], free[lane]);
    if (each === row) break;
    const ends = begins[each] + end[each] - start[each];
    for (const lane of lanes) free[lane] = ends;
    for (const [after, lag] of model.feeds[block[each]]) {
      const next = rowOf(model, after, microBatch[each]);
      begins[next] = Math.max(begins[next], ends + lag);
      if (!--waits[next]) queue.push(next);
    }
  }
  return begins[row];
}

/** Binary heap of rows. The first in an order leaves first. */
class Queue {
  constructor(order) {
    this.order = order;
    this.rows = [];
  }

  push(row) {
    const { rows, order } = this;
    let at = rows.length;
    for (let up = (at - 1) >> 1; at > 0 && order(row, rows[up]) < 0; at = up, up = (at - 1) >> 1) rows[at] = rows[up];
    rows[at] = row;
  }

  pop() {
    const { rows, order } = this;
    const first = rows[0];
    const row = rows.pop();
    if (!rows.length) return first;
    let at = 0;
    for (let down = 1; down < rows.length; down = 2 * at + 1) {
      if (down + 1 < rows.length && order(rows[down + 1], rows[down]) < 0) down++;
      if (order(row, rows[down]) <= 0) break;
      rows[at] = rows[down];
      at = down;
    }
    rows[at] = row;
    return first;
  }
}

/** Return the change that swaps two runs. */
export function swapOf(model, row, other, alone) {
  const [[block, micro_batch], [other_block, other_micro_batch]] = [row, other].map((each) => nameOfRun(model, each));
  return { does: "swap", block, micro_batch, other_block, other_micro_batch, alone };
}

/** Return why two runs cannot swap, because one needs the output of the other. Empty if they can. */
export function comesFirst(model, row, other) {
  const [first, second] = model.start[row] < model.start[other] ? [row, other] : [other, row];
  const seen = new Set();
  for (const open = [second]; open.length; ) {
    for (const { row: before } of neighbours(model, open.pop(), "needs")) {
      if (before === first) return `${called(model, second)} needs what ${called(model, first)} makes`;
      if (!seen.has(before)) open.push(before);
      seen.add(before);
    }
  }
  return "";
}

/** Return the run on a lane of `row` whose middle half contains a time, other than `row` itself, or -1. */
function runUnder(model, row, at, index) {
  if (!model.on[model.which[row]].includes(index)) return -1;
  const lane = model.lanes[index];
  const i = upTo(lane.start, at) - 1;
  if (i < 0 || lane.rows[i] === row) return -1;
  return Math.abs(at - (lane.start[i] + lane.end[i]) / 2) <= (lane.end[i] - lane.start[i]) / 4 ? lane.rows[i] : -1;
}

function called(model, row) {
  const [block, microBatch] = nameOfRun(model, row);
  return `${model.blocks[block].name} of ${microBatch}`;
}

function ghostsAt(model, row, start) {
  const spans = spansOf([...model.on[model.which[row]]].sort((one, other) => one - other));
  return spans.map((span) => [row, start + model.end[row] - model.start[row], span, start]);
}

/** Return the starts of two swapped runs: the later one starts where the earlier one did, which ends where the later one did. */
export function swapped(model, row, other) {
  const [first, second] = model.start[row] < model.start[other] ? [row, other] : [other, row];
  return [[second, model.start[first]], [first, model.end[second] - (model.end[first] - model.start[first])]];
}

/**
 * Return the ranges [from, to, lane, fits] in which a run could be while all others stay. If it does not fit, a device
 * would exceed its capacity.
 */
export function placesOf(model, row) {
  const lasts = model.end[row] - model.start[row];
  const ready = Math.max(0, ...neighbours(model, row, "needs").map((each) => model.end[each.row] + each.lag));
  const due = Math.min(Infinity, ...neighbours(model, row, "feeds").map((each) => model.start[each.row] - each.lag));
  const lanes = model.on[model.which[row]];
  let free = [[ready, Math.min(due, model.makespan + lasts)]];
  for (const index of lanes) {
    const lane = model.lanes[index];
    const found = [];
    for (const [from, to] of free) {
      let at = from;
      for (let i = Math.max(0, upTo(lane.start, from) - 1); i < lane.rows.length && lane.start[i] < to; i++) {
        if (lane.rows[i] === row || lane.end[i] <= from) continue;
        if (lane.start[i] > at) found.push([at, lane.start[i]]);
        at = Math.max(at, lane.end[i]);
      }
      if (at < to) found.push([at, to]);
    }
    free = found;
  }
  const [least, most] = roomOf(model, row);
  return free.filter(([from, to]) => to - from >= lasts).flatMap(([from, to]) => {
    const [begins, ends] = [Math.max(from, least), Math.min(to, most)];
    const parts = ends - begins < lasts ? [[from, to, false]] : [[from, begins, false], [begins, ends, true], [ends, to, false]];
    return parts.filter(([left, right]) => left < right).flatMap(([left, right, fits]) => lanes.map((lane) => [left, right, lane, fits]));
  });
}

/** Return the time range that memory allows for a run: one that acquires may not be earlier, one that releases not later. */
function roomOf(model, row) {
  const { memory } = model.blocks[model.block[row]];
  let [least, most] = [0, Infinity];
  for (const d of model.on[model.which[row]]) {
    const { capacity } = model.devices[d];
    if (capacity === null || memory === 0) continue;
    const { times, levels } = memoryOf(model, model.stores[d]);
    const full = (i) => levels[i] + Math.abs(memory) > capacity;
    if (memory > 0) {
      let i = below(times, model.start[row]) - 1;
      while (i >= 0 && !full(i)) i--;
      if (i >= 0) least = Math.max(least, Math.min(times[i + 1] ?? Infinity, model.start[row]));
    } else {
      let i = below(times, model.end[row]);
      while (i < times.length && !full(i)) i++;
      if (i < times.length) most = Math.min(most, times[i]);
    }
  }
  return [least, most];
}

/** Return which rule the runs [row, start] would break with these starts while all others stay. Empty if none. */
export function aloneWhy(model, moves) {
  const moved = new Map(moves);
  const begins = (row) => moved.get(row) ?? model.start[row];
  const ends = (row) => begins(row) + model.end[row] - model.start[row];
  for (const [row, start] of moves) {
    const who = moves.length > 1 ? called(model, row) : "it";
    const before = neighbours(model, row, "needs").find((each) => ends(each.row) + each.lag > start);
    if (before) return `${who} needs what ${called(model, before.row)} makes (rule: dependency)`;
    const after = neighbours(model, row, "feeds").find((each) => ends(row) + each.lag > begins(each.row));
    if (after) return `${called(model, after.row)} needs what ${who} makes (rule: dependency)`;
    for (const index of model.on[model.which[row]]) {
      const lane = model.lanes[index];
      for (let i = below(lane.start, ends(row)) - 1; i >= 0 && (lane.end[i] > start || moved.has(lane.rows[i])); i--) {
        if (!moved.has(lane.rows[i]) && lane.end[i] > start) return `${called(model, lane.rows[i])} runs ${moves.length > 1 ? `when ${who} would` : "then"} (rule: no overlap)`;
      }
    }
  }
  const memory = memoryWhy(model, moves);
  return memory && `${memory} (rule: memory)`;
}

/** Return which device would exceed its capacity if runs had these starts while all others stay. Empty if none. */
function memoryWhy(model, moves) {
  const steps = model.devices.map(() => []); // for each device, the changes of its memory and their times
  for (const [row, start] of moves) {
    const { memory } = model.blocks[model.block[row]];
    const lasts = model.end[row] - model.start[row];
    const [was, now] = memory > 0 ? [model.start[row], start] : [model.end[row], start + lasts];
    for (const d of memory ? model.on[model.which[row]] : []) steps[d].push([was, -memory], [now, memory]);
  }
  for (const [d, { name, capacity }] of model.devices.entries()) {
    if (capacity === null) continue;
    const times = [...new Set(steps[d].map(([time]) => time))].sort((one, other) => one - other);
    for (let i = 0; i + 1 < times.length; i++) {
      const more = steps[d].reduce((sum, [time, memory]) => sum + (time <= times[i] ? memory : 0), 0);
      const held = more > 0 ? mostHeld(model, model.stores[d], times[i], times[i + 1]) + more : 0;
      if (held > capacity) return `${name} would hold ${showMemory(held, model.memoryUnit)} of ${showMemory(capacity, model.memoryUnit)}`;
    }
  }
  return "";
}
