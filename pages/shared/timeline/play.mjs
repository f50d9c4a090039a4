// Playing a schedule: the times at which a run begins or ends, and what each device does then.

import { below, computing, heldAt, neighbours, upTo } from "./data.mjs";

/**
 * Return what a lane does at a time: the row that `runs`; or the `next` row and why it has not started: it `needs` a row
 * that has not ended, a row's output is being `sent`, a device is `full` or `busy`, or there is no reason and it `may`
 * start. Empty after its last run. There is no reason if the picture has no dependencies.
 * @returns {{runs?: number, next?: number, needs?: number, sent?: number, full?: number, busy?: number, may?: boolean}}
 */
export function doingAt(model, lane, tick) {
  const at = upTo(lane.start, tick);
  if (at && lane.end[at - 1] > tick) return { runs: lane.rows[at - 1] };
  if (at === lane.rows.length) return {};
  const next = lane.rows[at];
  return { next, ...(model.needs ? obstacle(model, next, tick) : {}) };
}

function obstacle(model, row, tick) {
  const there = ({ row: other, lag }) => model.end[other] + lag;
  const awaited = neighbours(model, row, "needs").filter((each) => there(each) > tick).sort((a, b) => there(b) - there(a))[0];
  if (awaited) return model.end[awaited.row] > tick ? { needs: awaited.row } : { sent: awaited.row };
  const { memory, devices } = model.blocks[model.block[row]];
  const over = (d) => model.devices[d].capacity !== null && heldAt(model, model.stores[d], tick) + memory > model.devices[d].capacity;
  const full = memory > 0 ? devices.find(over) : undefined;
  if (full !== undefined) return { full };
  const busy = computing(model).find((lane) => devices.includes(lane.device) && runsAt(lane, tick));
  return busy ? { busy: busy.device } : { may: true };
}

function runsAt(lane, tick) {
  const at = upTo(lane.start, tick);
  return at > 0 && lane.end[at - 1] > tick;
}

/** Return the rows that run at a time. */
export function runningAt(model, tick) {
  return model.lanes.flatMap((lane) => (runsAt(lane, tick) ? [lane.rows[upTo(lane.start, tick) - 1]] : []));
}

/** Return the next time at which a run begins or ends, or the previous one with `by` -1, or else the first or the last. */
export function momentBeside(model, tick, by) {
  const found = model.lanes.flatMap(({ start, end }) => {
    const at = (times) => (by > 0 ? times[upTo(times, tick)] : times[below(times, tick) - 1]);
    return [at(start), at(end)].filter((each) => each !== undefined);
  });
  return by > 0 ? Math.min(model.makespan, ...found) : Math.max(0, ...found);
}

/** Return what each device does at a time, in words. `nameOf` names a run. */
export function narrated(model, tick, nameOf) {
  const device = (d) => model.devices[d].name;
  const where = (row) => model.on[model.which[row]].map((lane) => device(model.lanes[lane].device)).slice(0, 1);
  return computing(model).map((lane) => {
    const { runs, next, needs, sent, full, busy, may } = doingAt(model, lane, tick);
    const name = device(lane.device);
    if (runs !== undefined) return [name, `runs ${nameOf(runs)}`];
    if (next === undefined) return [name, "has ended its last run"];
    if (needs !== undefined) return [name, `waits for ${nameOf(next)}: ${nameOf(needs)} has not ended on ${where(needs)}`];
    if (sent !== undefined) return [name, `waits for ${nameOf(next)}: the output of ${nameOf(sent)} is being sent`];
    if (full !== undefined) return [name, `waits for ${nameOf(next)}: ${full === lane.device ? "its memory" : `the memory of ${device(full)}`} is full`];
    if (busy !== undefined) return [name, `waits for ${nameOf(next)}, which needs ${device(busy)} too`];
    return [name, may ? `is idle, although ${nameOf(next)} could start` : `is idle until ${nameOf(next)}`];
  });
}
