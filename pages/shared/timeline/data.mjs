// Reads the buffer of `tessel_core.charts.timeline`: for each schedule, columns of runs, and data computed from them and the plan.

const COLUMN_TYPES = { "|u1": Uint8Array, "<u2": Uint16Array, "<u4": Uint32Array, "<f4": Float32Array, "<f8": Float64Array };
const BEGIN = 4;

/** Return the schedules in a buffer as {header, columns}. `bytes` may be a part of a larger buffer. */
export function framesOf(bytes) {
  const raw = bytes.slice().buffer; // a copy starts at address 0, so that float64 columns are aligned
  const frames = [];
  for (let begin = 0; begin < raw.byteLength; ) {
    const size = new DataView(raw).getUint32(begin, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(raw, begin + BEGIN, size)));
    const columns = {};
    begin += BEGIN + size;
    for (const [name, type, length] of header.columns) {
      columns[name] = new COLUMN_TYPES[type](raw, begin, length);
      begin += columns[name].byteLength;
      begin += (8 - (begin % 8)) % 8;
    }
    frames.push({ header, columns });
  }
  return frames;
}

/**
 * Runs with ends, lanes and memory, of a schedule (computed from its plan) or of a trace.
 * Run `row` is block `block[row]`. Its name is its block and micro-batch, or in a trace its operation and device.
 */
export function modelOf({ header, columns }) {
  const { block, start: apart, phase } = columns;
  const { blocks, devices } = header;
  const count = block.length;
  const traced = "lanes" in header;
  const durations = Float64Array.from(blocks, (each) => each.duration);
  const start = new Float64Array(count);
  const end = new Float64Array(count);
  for (let row = 0, tick = 0; row < count; row++) {
    tick += apart[row];
    start[row] = tick;
    end[row] = tick + (traced ? header.durations[columns.duration[row]] : durations[block[row]]);
  }
  const on = traced ? header.lanes.map((_, lane) => [lane]) : blocks.map((each) => each.devices);
  const which = traced ? columns.lane : block;
  const names = traced ? header.lanes : devices.map(({ name }, device) => ({ name, device, communicates: false }));
  const lanes = lanesOf(names, start, end, which, on);
  const model = {
    ...header, count, block, microBatch: columns.micro_batch, phase, start, end, lanes, traced,
    operation: columns.operation, which, on, index: null,
  };
  model.stores = traced ? storesOf(devices, columns) : lanes;
  model.needs = blocks.map(() => []);
  model.feeds = blocks.map(() => []);
  for (const [before, after, lag] of header.dependencies) {
    model.needs[after].push([before, lag]);
    model.feeds[before].push([after, lag]);
  }
  model.tall = on.map(spansOf);
  return model;
}

/** Return the runs of each lane in order of start. */
function lanesOf(names, start, end, which, on) {
  const inLane = new Int32Array(names.length);
  for (let row = 0; row < which.length; row++) for (const lane of on[which[row]]) inLane[lane]++;
  const lanes = names.map((each, index) => ({
    ...each, index, rows: new Int32Array(inLane[index]), start: new Float64Array(inLane[index]), end: new Float64Array(inLane[index]),
    busy: null, memory: null,
  }));
  const filled = new Int32Array(names.length);
  for (let row = 0; row < which.length; row++) {
    const its = on[which[row]];
    for (let i = 0; i < its.length; i++) {
      const lane = lanes[its[i]];
      const at = filled[its[i]]++;
      lane.rows[at] = row;
      lane.start[at] = start[row];
      lane.end[at] = end[row];
    }
  }
  return lanes;
}

/** Return the memory steps of each device from the columns of a trace, in which devices follow one another. */
function storesOf(devices, { memory_time: apart, memory_held: held }) {
  let first = 0;
  return devices.map(({ steps }, device) => {
    const times = new Float64Array(steps);
    for (let i = 0, tick = 0; i < steps; i++) times[i] = tick += apart[first + i];
    const levels = Float64Array.from(held.subarray(first, first + steps));
    first += steps;
    return { device, memory: { times, levels, most: null } };
  });
}

/** Return the groups of neighbouring lanes of a run, as [first, last]. */
export function spansOfRun(model, row) {
  return model.tall[model.which[row]];
}

/** Return groups of neighbouring devices as [first, last]. A block on a group is drawn in one piece. */
export function spansOf(devices) {
  const spans = [];
  for (const d of devices) {
    const last = spans[spans.length - 1];
    if (last && d === last[1] + 1) last[1] = d;
    else spans.push([d, d]);
  }
  return spans;
}

/** Return how many of the sorted `values` are at most `value`. */
export function upTo(values, value) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Return how many of the sorted `values` are below `value`. */
export function below(values, value) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Return the name of a run: its block and micro-batch, or its operation and device. */
export function nameOfRun(model, row) {
  return model.traced ? [model.operation[row], model.lanes[model.which[row]].device] : [model.block[row], model.microBatch[row]];
}

/** Return the row of a run by its name, or -1. */
export function rowOf(model, one, other) {
  model.index ??= model.traced ? byOperation(model) : byMicroBatch(model);
  return model.index(one, other);
}

/** Return the rows of some runs or operations, as far as they exist. */
export function rowsOf(model, runs) {
  return (runs ?? []).map(([one, other]) => rowOf(model, one, other)).filter((row) => row >= 0);
}

function byMicroBatch({ blocks, microBatches, count, block, microBatch }) {
  const rows = new Int32Array(blocks.length * microBatches).fill(-1);
  for (let row = 0; row < count; row++) rows[microBatch[row] * blocks.length + block[row]] = row;
  return (b, m) => (b >= 0 && b < blocks.length && m >= 0 && m < microBatches ? rows[m * blocks.length + b] : -1);
}

function byOperation({ operations, count, operation, which, lanes }) {
  const first = new Int32Array(operations).fill(-1);
  const next = new Int32Array(count).fill(-1);
  for (let row = count - 1; row >= 0; row--) {
    next[row] = first[operation[row]];
    first[operation[row]] = row;
  }
  return (op, device) => {
    let row = op >= 0 && op < operations ? first[op] : -1;
    while (row >= 0 && lanes[which[row]].device !== device) row = next[row];
    return row;
  };
}

/** Return all runs of a run's micro-batch, in order of start. */
export function pathOf(model, of) {
  const microBatch = model.microBatch[of];
  const rows = [];
  if (model.traced) {
    if (model.blocks[model.block[of]].alone) return [of];
    const alone = model.blocks.map((each) => each.alone);
    for (let row = 0; row < model.count; row++) if (model.microBatch[row] === microBatch && !alone[model.block[row]]) rows.push(row);
    return rows;
  }
  for (let b = 0; b < model.blocks.length; b++) {
    const row = rowOf(model, b, microBatch);
    if (row >= 0) rows.push(row);
  }
  return rows.sort((a, b) => a - b);
}

/** Return the runs that a run needs, or with "feeds" those that need it, as {row, lag}. */
export function neighbours(model, row, which) {
  return model[which][model.block[row]]
    .map(([b, lag]) => ({ row: rowOf(model, b, model.microBatch[row]), lag }))
    .filter((each) => each.row >= 0);
}

/** Return the run one step along a dependency: back to the latest input, or on to the first consumer. -1 if none. */
export function stepAlong(model, row, which) {
  let best = -1;
  let bestAt = which === "needs" ? -Infinity : Infinity;
  for (const each of neighbours(model, row, which)) {
    const at = which === "needs" ? model.end[each.row] + each.lag : model.start[each.row];
    if (which === "needs" ? at > bestAt : at < bestAt) [best, bestAt] = [each.row, at];
  }
  return best;
}

/** Return the busy ticks of a lane before each of its runs, and after the last. */
export function busyOf(lane) {
  if (lane.busy === null) {
    lane.busy = new Float64Array(lane.rows.length + 1);
    for (let i = 0; i < lane.rows.length; i++) lane.busy[i + 1] = lane.busy[i] + lane.end[i] - lane.start[i];
  }
  return lane.busy;
}

/** Return how many ticks a lane is busy between two times. */
export function busyBetween(lane, from, to) {
  const until = (tick) => {
    const i = upTo(lane.start, tick);
    if (i === 0) return 0;
    return busyOf(lane)[i - 1] + Math.min(tick, lane.end[i - 1]) - lane.start[i - 1];
  };
  return until(to) - until(from);
}

/**
 * Return the memory of a device, static memory included: `levels[i]` from `times[i]` to `times[i + 1]`; `times[0]` is 0.
 * A positive block acquires at its start, a negative one releases at its end. Releases come first on a tie.
 */
export function memoryOf(model, lane) {
  if (lane.memory !== null) return lane.memory;
  const memory = model.blocks.map((each) => each.memory);
  const acquires = [];
  const releases = [];
  for (let i = 0; i < lane.rows.length; i++) {
    const change = memory[model.block[lane.rows[i]]];
    if (change > 0) acquires.push(i);
    else if (change < 0) releases.push(i);
  }
  // Ends are sorted unless runs overlap, which is possible because invalid schedules can be shown too.
  releases.sort((a, b) => lane.end[a] - lane.end[b]);
  const times = new Float64Array(acquires.length + releases.length + 1);
  const levels = new Float64Array(times.length);
  let last = 0;
  let level = (levels[0] = model.devices[lane.device].static);
  for (let a = 0, r = 0; a < acquires.length || r < releases.length; ) {
    const release = r < releases.length && (a === acquires.length || lane.end[releases[r]] <= lane.start[acquires[a]]);
    const i = release ? releases[r++] : acquires[a++];
    const at = release ? lane.end[i] : lane.start[i];
    level += memory[model.block[lane.rows[i]]];
    if (at > times[last]) last++;
    times[last] = at;
    levels[last] = level;
  }
  lane.memory = { times: times.subarray(0, last + 1), levels: levels.subarray(0, last + 1), most: null };
  return lane.memory;
}

/** Return the memory of a lane at a tick, including changes at that tick. */
export function heldAt(model, lane, tick) {
  const { times, levels } = memoryOf(model, lane);
  return levels[Math.max(0, upTo(times, tick) - 1)];
}

/** Return the memory of a lane before a run acquires and after it has ended; in a trace, at its start and its end. */
export function heldAround(model, lane, row) {
  if (model.traced) return { before: heldAt(model, lane, model.start[row]), after: heldAt(model, lane, model.end[row]) };
  const change = model.blocks[model.block[row]].memory;
  const within = heldAt(model, lane, model.start[row]);
  return { before: within - Math.max(0, change), after: within + Math.min(0, change) };
}

const STRETCH = 64;

/** Return the most memory that a lane holds in [from, to). Maxima of whole groups of steps are cached. */
export function mostHeld(model, lane, from, to) {
  const memory = memoryOf(model, lane);
  const { times, levels } = memory;
  if (memory.most === null) {
    memory.most = new Float64Array(Math.ceil(levels.length / STRETCH)).fill(-Infinity);
    for (let i = 0; i < levels.length; i++) {
      const at = (i / STRETCH) | 0;
      if (levels[i] > memory.most[at]) memory.most[at] = levels[i];
    }
  }
  let i = Math.max(0, upTo(times, from) - 1);
  let most = levels[i];
  const until = Math.max(i + 1, below(times, to));
  while (i < until) {
    if (i % STRETCH === 0 && i + STRETCH <= until) {
      most = Math.max(most, memory.most[i / STRETCH]);
      i += STRETCH;
    } else {
      most = Math.max(most, levels[i++]);
    }
  }
  return most;
}

/** Return the peak memory of a lane. */
export function peakOf(model, lane) {
  const memory = memoryOf(model, lane);
  if (memory.peak === undefined) memory.peak = memory.levels.reduce((most, level) => Math.max(most, level), -Infinity);
  return memory.peak;
}

/** Return the gap of a lane around a time: its ends, and the positions in the lane before and after it. Null if none. */
export function holeAt(model, lane, tick) {
  const after = upTo(lane.start, tick);
  const from = after ? lane.end[after - 1] : 0;
  const to = after < lane.start.length ? lane.start[after] : model.makespan;
  return tick >= from && tick < to ? { lane: lane.index, from, to, before: after - 1, after } : null;
}

/** Return the computing lanes, one per device. */
export function computing(model) {
  return model.lanes.filter((lane) => !lane.communicates);
}

/** Return the idle ticks of all devices. */
export function idleOf(model) {
  model.idle ??= computing(model).reduce((sum, lane) => sum + model.makespan - (busyOf(lane)[lane.rows.length] ?? 0), 0);
  return model.idle;
}

/** Return numbers about a time range: idle share, the most idle device, and the fullest device. */
export function rangeFacts(model, from, to) {
  const length = to - from;
  let busy = 0;
  let idlest = { device: 0, idle: -1 };
  let fullest = { device: 0, held: -Infinity };
  for (const lane of computing(model)) {
    const works = busyBetween(lane, from, to);
    busy += works;
    if (length - works > idlest.idle) idlest = { device: lane.device, idle: length - works };
    const held = mostHeld(model, model.stores[lane.device], from, to);
    if (held > fullest.held) fullest = { device: lane.device, held };
  }
  return { length, busy, idle: length * model.devices.length - busy, idlest, fullest };
}
