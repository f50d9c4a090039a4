// What the timeline's script makes of buffers: a line of JSON in, [a buffer in base64, questions], and one out, the answers.

import { createInterface } from "node:readline";
import * as data from "../../pages/shared/timeline/data.mjs";
import * as edit from "../../pages/shared/timeline/edit.mjs";
import * as play from "../../pages/shared/timeline/play.mjs";
import * as draw from "../../pages/shared/timeline/draw.mjs";
import * as scale from "../../pages/shared/timeline/scale.mjs";
import * as timeline from "../../pages/shared/timeline/timeline.mjs";

let model, layout, whole;

/** The colours' shares of each lane in so many columns, and the runs that are drawn alone. */
function split(view, width, least) {
  const alone = [];
  const busy = model.lanes.map((lane) => {
    const sums = new Float32Array(4 * width);
    const colours = draw.coloursOf(model, "kind");
    draw.splitByRoom(model, lane, view, width, colours, sums, (row, l, r) => alone.push([lane.device, row, l, r]), least);
    return Array.from({ length: width }, (_, x) => sums[4 * x + 3]);
  });
  return { busy, alone };
}

const answers = {
  runs: () => Array.from({ length: model.count }, (_, row) => [model.block[row], model.microBatch[row], model.start[row], model.end[row]]),
  named: () => Array.from({ length: model.count }, (_, row) => [data.nameOfRun(model, row), data.rowOf(model, ...data.nameOfRun(model, row))]),
  memory: () => model.stores.map((lane) => [data.memoryOf(model, lane).times, data.memoryOf(model, lane).levels].map((each) => [...each])),
  around: () => model.lanes.map((lane) => [...lane.rows].map((row) => data.heldAround(model, lane, row).after)),
  busy: ([from, to]) => model.lanes.map((lane) => data.busyBetween(lane, from, to)),
  most: ([from, to]) => model.stores.map((lane) => data.mostHeld(model, lane, from, to)),
  range: ([from, to]) => data.rangeFacts(model, from, to),
  idle: () => data.idleOf(model),
  path: (microBatch) => data.pathOf(model, data.rowOf(model, 0, microBatch)).map((row) => model.block[row]),
  hole: ([lane, at]) => data.holeAt(model, model.lanes[lane], at),
  steps: () => Array.from({ length: model.count }, (_, row) => ["needs", "feeds"].map((which) => data.stepAlong(model, row, which))),
  split: ([from, to, width, least]) => split({ from, to }, width, least),
  zoomed: ([view, at, factor]) => scale.zoomed(view, at, factor, model.makespan),
  panned: ([view, share]) => scale.panned(view, share, model.makespan),
  fitted: ([from, to]) => scale.fitted(from, to, model.makespan),
  ticks: ([from, to, pixels, unit]) => scale.ticksOf({ from, to }, pixels, unit).ticks.map((each) => each.label),
  part: ([x, y]) => scale.partAt(layout, x, y),
  there: (ticks) => ticks.map((tick) => scale.momentAt(layout, whole, scale.pixelOf(layout, whole, tick))),
  times: (each) => each.map(([ticks, unit]) => scale.showTime(ticks, unit)),
  memories: (each) => each.map(([amount, unit]) => scale.showMemory(amount, unit)),
  labelled: () => ["kind", "micro-batch", "block"].flatMap((mode) => {
    const { rgb, ink } = draw.coloursOf(model, mode);
    return ink.map((each, at) => [...rgb.slice(3 * at, 3 * at + 3)].map((value) => value * (1 - draw.CUES[each])).concat(each));
  }),
  inks: () => model.kinds.map(([, colour]) => draw.inkOn(draw.channels(colour))),
  shades: () => draw.coloursOf(model, "kind").css,
  address: (look) => timeline.lookInAddress(look, model.makespan),
  look: (query) => timeline.lookOfAddress(query, model.makespan),
  isolated: (text) => draw.isolated(text),
  places: () => Array.from({ length: model.count }, (_, row) => edit.placesOf(model, row)),
  lands: (drops) => drops.map(([run, start]) => {
    const row = data.rowOf(model, ...run);
    return [edit.landsAt(model, row, start), edit.aloneWhy(model, [[row, start]])];
  }),
  swaps: (pairs) => pairs.map((pair) => {
    const [row, other] = pair.map((run) => data.rowOf(model, ...run));
    return edit.comesFirst(model, row, other) || edit.aloneWhy(model, edit.swapped(model, row, other));
  }),
  first: (pairs) => pairs.map(([one, other]) => edit.comesFirst(model, data.rowOf(model, ...one), data.rowOf(model, ...other))),
  doing: (ticks) => ticks.map((tick) => model.lanes.map((lane) => play.doingAt(model, lane, tick))),
  moments: (by) => {
    const found = [by > 0 ? 0 : model.makespan];
    for (let next; (next = play.momentBeside(model, found.at(-1), by)) !== found.at(-1); ) found.push(next);
    return found;
  },
  told: (tick) => play.narrated(model, tick, (row) => `${model.blocks[model.block[row]].name} of ${model.microBatch[row]}`),
  spans: (devices) => data.spansOf(devices),
  choices: () => [Object.keys(timeline.COLOURS), Object.keys(timeline.LANES)],
};

for await (const line of createInterface({ input: process.stdin })) {
  const [buffer, questions] = JSON.parse(line);
  model = data.modelOf(data.framesOf(Uint8Array.from(Buffer.from(buffer, "base64")))[0]);
  layout = scale.layoutOf(model, 800);
  whole = { from: 0, to: model.makespan };
  console.log(JSON.stringify(questions.map(([name, given]) => answers[name](given))));
}
