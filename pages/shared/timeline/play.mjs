// A schedule as it goes on: moments at which something begins or ends, and what each device does then.

import { below, computing, heldAt, neighbours, upTo } from "./data.mjs";

/**
 * What a lane does at a moment: the row that `runs`; or the row that comes `next`, and what keeps it from beginning: a row
 * that it `needs` and that has not ended, one that is `sent`, a device that is `full` or `busy`, or nothing, so that it `may`;
 * nothing at its end, and no reason in a picture that does not know what needs what.
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

/** The rows that run at a moment. */
export function runningAt(model, tick) {
  return model.lanes.flatMap((lane) => (runsAt(lane, tick) ? [lane.rows[upTo(lane.start, tick) - 1]] : []));
}

/** The next moment at which a run begins or ends, or with `by` -1 the one before; the first or the last where none is. */
export function momentBeside(model, tick, by) {
  const found = model.lanes.flatMap(({ start, end }) => {
    const at = (times) => (by > 0 ? times[upTo(times, tick)] : times[below(times, tick) - 1]);
    return [at(start), at(end)].filter((each) => each !== undefined);
  });
  return by > 0 ? Math.min(model.makespan, ...found) : Math.max(0, ...found);
}

/** What each device does at a moment, in words; `nameOf` names a run. */
export function narrated(model, tick, nameOf) {
  const device = (d) => model.devices[d].name;
  const where = (row) => model.on[model.which[row]].map((lane) => device(model.lanes[lane].device)).slice(0, 1);
  return computing(model).map((lane) => {
    const { runs, next, needs, sent, full, busy, may } = doingAt(model, lane, tick);
    const name = device(lane.device);
    if (runs !== undefined) return [name, `runs ${nameOf(runs)}`];
    if (next === undefined) return [name, "has nothing left to do"];
    if (needs !== undefined) return [name, `waits for ${nameOf(next)}: ${nameOf(needs)} has not ended on ${where(needs)}`];
    if (sent !== undefined) return [name, `waits for ${nameOf(next)}: what ${nameOf(sent)} made is on its way`];
    if (full !== undefined) return [name, `waits for ${nameOf(next)}: ${full === lane.device ? "its memory" : `the memory of ${device(full)}`} is full`];
    if (busy !== undefined) return [name, `waits for ${nameOf(next)}, which needs ${device(busy)} too`];
    return [name, may ? `idles, though ${nameOf(next)} could begin` : `idles until ${nameOf(next)}`];
  });
}
