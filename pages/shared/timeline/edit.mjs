// Changing a plan or a schedule by hand: what a drag of a block means, what goes along, and why not.

import { neighbours, spansOf, upTo } from "./data.mjs";
import { momentAt, partAt, pixelOf, roundStep, showMemory, showMoment, showTime } from "./scale.mjs";

const GRIP_PIXELS = 6;
const LEAST_TO_GRIP = 18;
const MOST_NAMED = 6;

/**
 * What seizing a run at a pixel does: near its end it changes how long the block lasts, else where its stage is. In a
 * placement, whose `moves` the server has judged, only what is on a device moves, not the transfers.
 */
export function gripAt(model, layout, view, row, x) {
  if (model.moves) return model.moves.of[model.block[row]] ? "move" : "";
  const [left, right] = [model.start[row], model.end[row]].map((tick) => pixelOf(layout, view, tick));
  return right - left >= LEAST_TO_GRIP && right - x <= GRIP_PIXELS ? "stretch" : "move";
}

/** The blocks that go along when a block leaves a device. */
export function carried(model, block, from, alone) {
  if (model.moves) return model.moves.along[block] ?? [];
  const along = (each, b) => !alone && model.stages[b] === model.stages[block] && each.devices.includes(from);
  return model.blocks.flatMap((each, b) => (b === block || along(each, b) ? [b] : []));
}

/** Why a block cannot go from one device to another; empty where it can. */
export function whyNot(model, block, from, to, alone) {
  if (model.moves) return model.moves.reasons[model.moves.of[block][to]];
  const there = carried(model, block, from, alone).find((b) => model.blocks[b].devices.includes(to));
  if (there !== undefined) return `${model.blocks[there].name} runs on ${model.devices[to].name} already`;
  const { memory } = model.blocks[block];
  const left = alone && memory ? carried(model, block, from, false).find((b) => b !== block && model.blocks[b].memory) : undefined;
  return left === undefined ? "" : `alone it cannot go: ${model.blocks[left].name} ${memory > 0 ? "releases what it holds" : "holds what it releases"}`;
}

/** What a drop here would do to the block that is dragged, in a few words, and why it would not. */
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
  return names.length > MOST_NAMED ? `${names.slice(0, MOST_NAMED).join(", ")} and ${names.length - MOST_NAMED} more` : names.join(", ");
}

/** The device whose capacity is seized at a point: the line in its lane of memory, or the number beside it; or -1. */
export function capacityAt(model, layout, places, x, y) {
  if (!model.stages || !layout.memoryHeight || y < layout.memory - GRIP_PIXELS || y >= layout.memoryEnd) return -1;
  const near = (d) => Math.abs(y - lineOf(model, places, d)) <= GRIP_PIXELS;
  const { part, lane } = partAt(layout, x, y);
  const at = Math.max(0, Math.floor((y - layout.memory) / layout.memoryHeight));
  if (part === "names") return at;
  return [lane, at, at + 1].find((d) => d >= 0 && d < model.devices.length && near(d)) ?? -1;
}

/** The height of a device's capacity, at the top of its lane where that is unlimited or far off. */
function lineOf(model, places, d) {
  const top = places.y(d, places.floor(d) + places.top);
  return model.devices[d].capacity === null ? top : Math.max(top, places.y(d, model.devices[d].capacity));
}

/** What a drop of a device's capacity here would do: as much more as it is higher, in round steps. */
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

/** Where what is held would be drawn: [run, its end, first and last lane] each. */
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

/** What the buttons would do with the stage of a run; null for one that does not apply. */
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

/** What a drop of a run here would do: another start, and where else it could stand while all others stay. */
export function holdRun(model, layout, view, { row, x: from, alone, places }, x) {
  const step = Math.max(1, roundStep((view.to - view.from) / (layout.right - layout.left)));
  const by = Math.round((momentAt(layout, view, x) - momentAt(layout, view, from)) / step) * step;
  const start = Math.max(0, model.start[row] + by);
  const [block, microBatch] = [model.block[row], model.microBatch[row]];
  const end = start + model.end[row] - model.start[row];
  const spans = spansOf([...model.on[model.which[row]]].sort((one, other) => one - other));
  return {
    blocks: [], run: [block, microBatch], refused: "", places: places ?? placesOf(model, row),
    ghosts: spans.map((span) => [row, end, span, start]),
    says: `starts at ${showMoment(start, model.timeUnit, Math.max(1, step))}${alone ? ", all others stay" : ""}`,
    change: by ? { does: "place", block, micro_batch: microBatch, start, alone } : null,
  };
}

/** The stretches [from, to, lane] in which a run could be while all others stay where they are, memory left aside. */
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
  return free.filter(([from, to]) => to - from >= lasts).flatMap(([from, to]) => lanes.map((lane) => [from, to, lane]));
}
