// Rules of a puzzle: where a run can be placed beside the placed ones, and why not elsewhere.

/** A plan and its placed runs: `placed` maps the key of a run (block and micro-batch) to its start. */
export class Puzzle {
  constructor({ blocks, devices, dependencies, microBatches, timeUnit }) {
    this.blocks = blocks;
    this.devices = devices;
    this.microBatches = microBatches;
    this.timeUnit = timeUnit;
    this.needs = blocks.map((_, b) => dependencies.filter(([, after]) => after === b).map(([before, , lag]) => [before, lag]));
    this.feeds = blocks.map((_, b) => dependencies.filter(([before]) => before === b).map(([, after, lag]) => [after, lag]));
    this.on = devices.map((_, d) => blocks.flatMap((each, b) => (each.devices.includes(d) ? [b] : [])));
    this.placed = new Map();
  }

  get runs() {
    return this.blocks.length * this.microBatches;
  }

  get complete() {
    return this.placed.size === this.runs;
  }

  start(b, m) {
    return this.placed.get(keyOf(b, m));
  }

  end(b, m) {
    return this.start(b, m) + this.blocks[b].duration;
  }

  /** Number of micro-batches in the block: the first ones, if all their runs are placed. 0 if one is missing. */
  get block() {
    const runs = Array.from({ length: this.microBatches }, (_, m) => this.blocks.filter((_, b) => this.start(b, m) !== undefined).length);
    const whole = runs.filter((count) => count === this.blocks.length).length;
    return runs.every((count, m) => count === (m < whole ? this.blocks.length : 0)) ? whole : 0;
  }

  /** Return the block and its copies with a period in ticks. They may break rules. */
  stamped(period, copies) {
    const { blocks, devices, timeUnit, block } = this;
    const made = new Puzzle({ blocks, devices, timeUnit, dependencies: [], microBatches: block * copies });
    Object.assign(made, { needs: this.needs, feeds: this.feeds });
    for (let i = 0; i < copies; i++) for (const [b, m, at] of this.list()) made.placed.set(keyOf(b, m + i * block), at + i * period);
    return made;
  }

  /** Return why the block cannot repeat with a period in ticks. Empty if it can repeat for ever. */
  whyNotStamped(period) {
    if (!this.block) return "a block has all runs of its micro-batches";
    // Check its own length plus a period. By then every two copies that can overlap have been checked.
    const all = this.stamped(period, Math.ceil(this.makespan / period) + 1);
    for (const run of all.list()) {
      const why = all.whyNot(...run);
      if (why) return why;
    }
    return "";
  }

  get makespan() {
    return Math.max(0, ...this.list().map(([b, m]) => this.end(b, m)));
  }

  /** Return the placed runs as [block, micro-batch, start], in order of start. */
  list() {
    const found = [...this.placed].map(([key, start]) => [...runOf(key), start]);
    return found.sort((one, other) => one[2] - other[2] || one[1] - other[1] || one[0] - other[0]);
  }

  /** Return the first micro-batch whose run of a block is not placed. Undefined if all are placed. */
  next(b) {
    for (let m = 0; m < this.microBatches; m++) if (this.start(b, m) === undefined) return m;
    return undefined;
  }

  name(b, m) {
    return this.microBatches === 1 ? this.blocks[b].name : `${this.blocks[b].name} of micro-batch ${m}`;
  }

  /** Return which runs must be placed before this one, as a sentence. Empty if none. */
  lacks(b, m) {
    const missing = this.needs[b].filter(([before]) => this.start(before, m) === undefined).map(([before]) => this.blocks[before].name);
    return missing.length ? `${this.name(b, m)} needs ${inWords(missing)} first` : "";
  }

  /** Return why a run cannot start at a tick. Empty if it can. */
  whyNot(b, m, start) {
    const { duration, devices } = this.blocks[b];
    const name = this.name(b, m);
    const lacks = this.lacks(b, m);
    if (lacks) return lacks;
    if (start < 0) return `${name} cannot start before 0`;
    for (const [before, lag] of this.needs[b]) {
      const ready = this.end(before, m) + lag;
      const way = lag ? ` and what it makes is on its way until ${this.at(ready)}` : "";
      if (start < ready) return `${name} cannot start at ${this.at(start)}: ${this.blocks[before].name} ends at ${this.at(this.end(before, m))}${way}`;
    }
    for (const [after, lag] of this.feeds[b]) {
      const due = this.start(after, m);
      if (due !== undefined && start + duration + lag > due) return `${name} cannot end at ${this.at(start + duration)}: ${this.blocks[after].name} starts at ${this.at(due)}`;
    }
    for (const d of devices) {
      const other = this.overlap(d, b, m, start, start + duration);
      if (other) return `${name} cannot start at ${this.at(start)}: ${this.devices[d].name} runs ${this.name(...other)} then`;
    }
    for (const d of devices) {
      const { capacity } = this.devices[d];
      const over = capacity === null ? undefined : this.levels(d, [b, m, start]).find(([, held]) => held > capacity);
      if (over) return `${name} does not fit at ${this.at(start)}: ${this.devices[d].name} would hold ${over[1]} of ${capacity} at ${this.at(over[0])}, and nothing is freed before`;
    }
    return "";
  }

  at(tick) {
    return tick.toLocaleString("en");
  }

  overlap(d, b, m, from, to) {
    return this.list().find(([c, n, at]) => this.blocks[c].devices.includes(d) && !(c === b && n === m) && at < to && at + this.blocks[c].duration > from);
  }

  /** Return [tick, memory held from then on] for each change on a device, with one run added or moved. */
  levels(d, extra) {
    const changes = new Map([[0, 0]]);
    const runs = this.list().filter(([b, m]) => !extra || b !== extra[0] || m !== extra[1]);
    for (const [b, , start] of extra ? [...runs, extra] : runs) {
      const { memory, devices, duration } = this.blocks[b];
      if (!memory || !devices.includes(d)) continue;
      const at = memory > 0 ? start : start + duration;
      changes.set(at, (changes.get(at) ?? 0) + memory); // releases come first on a tie, so only the sum counts
    }
    let held = this.devices[d].static;
    return [...changes].sort((one, other) => one[0] - other[0]).map(([at, change]) => [at, (held += change)]);
  }

  /** Return the earliest possible start of a run. Undefined if there is none; `stuck` says why. */
  earliest(b, m) {
    if (this.lacks(b, m)) return undefined;
    const { devices } = this.blocks[b];
    const ready = Math.max(0, ...this.needs[b].map(([before, lag]) => this.end(before, m) + lag));
    const here = this.list().filter(([c]) => this.blocks[c].devices.some((d) => devices.includes(d)));
    const moments = [ready, ...here.map(([c, n]) => this.end(c, n)).filter((end) => end > ready)].sort((one, other) => one - other);
    return moments.find((start) => !this.whyNot(b, m, start));
  }

  /** Return why a run cannot be placed anywhere now. Empty if it can. */
  stuck(b, m) {
    if (this.earliest(b, m) !== undefined) return "";
    return this.lacks(b, m) || this.whyNot(b, m, Math.max(...this.needs[b].map(([before, lag]) => this.end(before, m) + lag), ...this.list().map(([c, n]) => this.end(c, n)), 0));
  }

  /** Return the runs that can be placed now, as [block, micro-batch, earliest start]. */
  ready() {
    return this.blocks.flatMap((_, b) => {
      const m = this.next(b);
      const start = m === undefined ? undefined : this.earliest(b, m);
      return start === undefined ? [] : [[b, m, start]];
    });
  }

  place(b, m, start) {
    const why = this.whyNot(b, m, start);
    if (!why) this.placed.set(keyOf(b, m), start);
    return why;
  }

  /** Remove a run and all runs that depend on it. */
  remove(b, m) {
    if (!this.placed.delete(keyOf(b, m))) return;
    for (const [after] of this.feeds[b]) this.remove(after, m);
  }

  /** Start from runs [block, micro-batch, start] in any order. Return false, with nothing placed, if they break a rule. */
  begin(runs) {
    this.placed = new Map(runs.map(([b, m, start]) => [keyOf(b, m), start]));
    const fine = runs.every(([b, m]) => b < this.blocks.length && m < this.microBatches) && runs.every((each) => !this.whyNot(...each));
    if (!fine) this.placed = new Map();
    return fine;
  }

  /** Return whether all placed runs start as in a schedule, given as starts[micro-batch][block]. */
  follows(starts) {
    return this.list().every(([b, m, start]) => starts[m]?.[b] === start);
  }

  /** Return the next run of a schedule that fits the placed runs. Undefined if none fits yet. */
  after(starts) {
    const left = this.blocks.flatMap((_, b) => starts.flatMap((row, m) => (this.start(b, m) === undefined ? [[b, m, row[b]]] : [])));
    return left.sort((one, other) => one[2] - other[2] || one[1] - other[1] || this.depth(one[0]) - this.depth(other[0])).find((each) => !this.whyNot(...each));
  }

  depth(b) {
    return this.needs[b].length ? 1 + Math.max(...this.needs[b].map(([before]) => this.depth(before))) : 0;
  }
}

export function keyOf(b, m) {
  return `${b} ${m}`;
}

export function runOf(key) {
  return key.split(" ").map(Number);
}

function inWords(names) {
  return names.length < 2 ? names[0] : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}
