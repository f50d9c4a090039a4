// Board on which a player places runs: for each device a tray of its next runs, a lane, and its memory.

import { memoryScale, roundStep, showMoment, showTime, ticksOf } from "../../shared/timeline/scale.mjs";
import { Puzzle, keyOf, runOf } from "./puzzle.mjs";

const REST_MS = 300;
const DRAG_PIXELS = 5;
const ROOM = 1.15; // length of the lanes, as a multiple of the makespan so far
const TICK_PIXELS = 46;
const NAMED_PIXELS = 38; // a narrower run shows only its micro-batch, or nothing
const NUMBERED_PIXELS = 16;
const LETTER_PIXELS = 7;
const NEAR_PIXELS = 14; // a drop so near to a lane counts as in it
const MAX_PERIOD = 999;
const SHOWN_COPIES = 2; // of a stamped block
const LANE_STEPS = 240; // positions of a lane, if the plan has real time units
const known = new WeakMap();

export default function ({ data, parentElement, setStateValue, setTriggerValue }) {
  const root = parentElement.querySelector(".board");
  if (!root || !data) return undefined;
  let board = known.get(root);
  if (!board || board.level !== data.level) known.set(root, (board = new Board(root, data)));
  board.report = (moves) => setStateValue("moves", moves);
  board.ask = (asked) => setTriggerValue("ask", asked);
  board.take(data);
  return () => clearTimeout(board.resting);
}

class Board {
  constructor(root, data) {
    this.root = root;
    this.level = data.level;
    this.past = [];
    this.hinted = 0;
    this.active = this.pending = "";
    this.drag = null;
    this.report = this.ask = (_moves) => {};
    this.data = data;
    this.puzzle = new Puzzle(data.plan);
    const fine = this.puzzle.begin(data.placed);
    this.horizon = data.horizon;
    this.says = fine ? "" : "The saved runs of this board break a rule, so the board was cleared.";
    this.frame();
  }

  /** Create the rows of devices, the axis and the buttons, which never change. */
  frame() {
    const { root, puzzle } = this;
    root.textContent = "";
    root.onkeydown = (event) => this.key(event);
    this.line = put(root, "p", "line", { role: "status" });
    const rows = put(root, "div", "rows");
    this.rows = puzzle.devices.map(({ name, capacity }, d) => {
      const row = put(rows, "div", "row", { role: "group", ariaLabel: name });
      const head = put(row, "div", "head");
      put(head, "b", "").textContent = name;
      const held = put(head, "span", "held");
      const tray = put(row, "div", "tray");
      const side = put(row, "div", "side");
      const lane = put(side, "div", "lane");
      lane.addEventListener("click", (event) => event.target === lane && this.click(d, event));
      lane.addEventListener("pointermove", (event) => this.hover(d, event));
      lane.addEventListener("pointerleave", () => this.hover(-1));
      const memory = capacity === null ? null : put(side, "div", "memory");
      return { row, held, tray, lane, memory };
    });
    const foot = put(rows, "div", "row foot");
    put(foot, "div", "head");
    this.unitName = put(foot, "div", "unit");
    this.axis = put(put(foot, "div", "side"), "div", "axis");
    const tools = put(root, "div", "tools");
    this.buttons = Object.fromEntries(
      TOOLS.map(([name, label, about]) => {
        const button = put(tools, "button", "", { type: "button", title: about });
        button.textContent = label;
        button.dataset.key = name;
        button.addEventListener("click", () => this.press(name));
        return [name, button];
      }),
    );
    if (this.data.stamp) this.stampTools(tools);
    this.score = put(tools, "span", "score");
  }

  /** Create the field and the button that repeat the block with a period. */
  stampTools(tools) {
    const label = put(tools, "label", "every");
    label.append("Stamp every ");
    this.every = put(label, "input", "", { type: "number", min: 1, max: MAX_PERIOD, value: this.data.stamp.period ?? "" });
    this.every.addEventListener("keydown", (event) => {
      event.stopPropagation(); // the field needs digits and arrows
      if (event.key === "Enter") this.stamp(Number(this.every.value));
    });
    const button = put(tools, "button", "", { type: "button", title: "Repeat the block with this period" });
    button.textContent = "Stamp";
    button.dataset.key = "stamp";
    button.addEventListener("click", () => this.stamp(Number(this.every.value)));
    this.stampButton = button;
    this.period = this.data.stamp.period && !this.puzzle.whyNotStamped(this.data.stamp.period) ? this.data.stamp.period : null;
    this.fine = true;
  }

  /** Repeat the block with a period. The result is always shown, but only sent if it keeps the rules. */
  stamp(period) {
    const { puzzle } = this;
    if (!puzzle.block) return this.tell("First place all runs of a micro-batch. They form the block.", true);
    if (!Number.isInteger(period) || period < 1 || period > MAX_PERIOD) return this.tell("A period is a whole number of steps, from 1 to 999.", true);
    const why = puzzle.whyNotStamped(period);
    this.every.value = period;
    Object.assign(this, { period, fine: !why });
    this.tell(why ? `Every ${period}: ${why}.` : `A block of ${puzzle.block} repeats every ${period}, for ever.`, Boolean(why));
    this.send();
  }

  take(data) {
    this.data = data;
    if (this.pending && data.advice?.of === this.signature) {
      const pending = this.pending;
      this.pending = "";
      this.press(pending);
      return;
    }
    this.draw();
  }

  get signature() {
    return JSON.stringify(this.puzzle.list());
  }

  /** Known schedule that continues the placed runs, or null. */
  get target() {
    const { target, advice } = this.data;
    if (target && this.puzzle.follows(target)) return target;
    return advice?.starts && this.puzzle.follows(advice.starts) ? advice.starts : null;
  }

  press(name) {
    const { puzzle } = this;
    if (name === "back" && this.past.length) this.to(this.past.pop(), "Undone.");
    if (name === "anew" && puzzle.placed.size) this.change(() => puzzle.begin([]), "The board is empty.");
    if (name === "hint" && this.hinted < this.data.hints.length) this.tell(`Hint ${this.hinted + 1}: ${this.data.hints[this.hinted++]}`);
    else if (["hint", "step", "finish"].includes(name)) this.coach(name);
  }

  /** Give a hint, place the next run, or place all remaining runs. */
  coach(name) {
    const { puzzle, data } = this;
    if (puzzle.complete && !data.stamp) return;
    const { target } = this;
    if (data.stamp && this.coachStamps(name, target)) return;
    if (!target && data.advice?.of === this.signature) {
      this.tell(data.advice.proved ? "These runs cannot be completed. Press Undo move." : "The coach found no completion in time. Press Undo move.", true);
      return;
    }
    if (!target) {
      this.pending = name;
      this.tell("The coach is thinking …");
      this.send(true);
      return;
    }
    const next = puzzle.after(target);
    if (!next && name !== "finish") return this.tell("Memory is full, so the coach cannot continue run by run. Press Finish.");
    const where = next && `${puzzle.name(next[0], next[1])} at ${this.moment(next[2])}`;
    if (name === "hint") {
      this.active = keyOf(next[0], next[1]);
      this.tell(`Next: ${where}.`);
    } else if (name === "step") this.change(() => puzzle.place(...next), `The coach places ${where}.`);
    else this.change(() => puzzle.begin(target.flatMap((row, m) => row.map((at, b) => [b, m, at]))), "The coach has placed the rest.");
  }

  /** Handle the coach's buttons in levels that stamp a block. Return false if the coach should place a run instead. */
  coachStamps(name, target) {
    const { best } = this.data.stamp;
    if (!target) this.tell("The coach knows another block. Press Undo move, or stamp this one.", true);
    else if (this.puzzle.after(target)) {
      if (name !== "finish") return false;
      this.change(() => this.puzzle.begin(target.flatMap((row, m) => row.map((at, b) => [b, m, at]))), "");
      this.stamp(best);
    } else if (name === "hint") this.tell(`Next: stamp it every ${best}.`);
    else this.stamp(best);
    return true;
  }

  /** Change the placed runs. If the change returns a complaint, show it and restore the runs. */
  change(make, done) {
    const before = this.puzzle.list();
    const why = make();
    if (typeof why === "string" && why) {
      this.puzzle.begin(before);
      this.tell(`${why}.`, true);
      return false;
    }
    this.past.push(before);
    this.active = "";
    this.period = null;
    this.told(done);
    return true;
  }

  to(list, done) {
    this.period = null;
    this.puzzle.begin(list);
    this.told(done);
  }

  told(done) {
    this.hinted = Math.min(this.hinted, this.data.hints.length);
    const { block, complete } = this.puzzle;
    if (this.data.stamp && block) this.tell(`The block has ${block === 1 ? "1 micro-batch" : `${block} micro-batches`}. Choose its period.`);
    else this.tell(complete ? "All runs are placed." : done);
    this.send();
  }

  tell(text, bad = false) {
    this.says = text;
    this.bad = bad;
    this.draw();
  }

  /** Report the runs after a pause, or at once if the schedule is complete or the coach is asked. */
  send(asks = false) {
    clearTimeout(this.resting);
    const now = () => {
      const moves = { level: this.level, list: this.puzzle.list(), period: (this.fine && this.period) || null };
      if (asks) this.ask(moves);
      else this.report(moves);
    };
    if (asks || this.puzzle.complete || this.period) now();
    else this.resting = setTimeout(now, REST_MS);
  }

  place(b, m, start) {
    this.change(() => this.puzzle.place(b, m, start), `${this.puzzle.name(b, m)} starts at ${this.moment(start)}.`);
  }

  /** Place the next run of a block as early as possible, or show why it cannot be placed. */
  early(b) {
    const m = this.puzzle.next(b);
    if (m === undefined) return;
    const start = this.puzzle.earliest(b, m);
    if (start === undefined) this.tell(`${this.puzzle.stuck(b, m)}.`, true);
    else this.place(b, m, start);
  }

  /** Handle a click into a lane: place the chosen run, or the only run that is possible. */
  click(d, event) {
    const { puzzle } = this;
    if (this.skip) return void (this.skip = false);
    const at = this.tick(d, event.clientX);
    const [chosen] = this.active ? [runOf(this.active)] : [];
    const here = puzzle.ready().filter(([b]) => puzzle.blocks[b].devices.includes(d));
    if (chosen && puzzle.blocks[chosen[0]].devices.includes(d) && puzzle.start(...chosen) === undefined) this.place(...chosen, at);
    else if (here.length === 1) this.place(here[0][0], here[0][1], at);
    else this.tell(here.length ? "Choose a run on the left first, because several are possible." : `No run is possible on ${puzzle.devices[d].name} now.`, true);
  }

  key(event) {
    const named = { Backspace: "back", h: "hint", s: "step" }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || (!named && !/^[1-9]$/.test(event.key) && !/^(Arrow(Left|Right)|Delete)$/.test(event.key))) return;
    const key = /** @type {HTMLElement} */ (document.activeElement)?.dataset?.run ?? this.root.getRootNode().activeElement?.dataset?.run;
    const run = key ? runOf(key) : null;
    const start = run && this.puzzle.start(...run);
    if (event.key === "Delete" && start !== undefined && run) this.takeOut(...run);
    else if (event.key.startsWith("Arrow") && start !== undefined && run) this.move(...run, start + (event.key === "ArrowLeft" ? -1 : 1) * this.unit);
    else if (named) this.press(named);
    else if (/^[1-9]$/.test(event.key)) {
      const ready = this.puzzle.ready()[event.key - 1];
      if (ready) this.place(...ready);
    } else return;
    event.preventDefault();
  }

  takeOut(b, m) {
    this.change(() => this.puzzle.remove(b, m), `${this.puzzle.name(b, m)} and the runs that need it are removed.`);
  }

  move(b, m, start) {
    if (start === this.puzzle.start(b, m)) return;
    this.change(() => this.puzzle.place(b, m, start), `${this.puzzle.name(b, m)} starts at ${this.moment(start)}.`);
  }

  // Drawing

  get unit() {
    return this.data.plan.timeUnit === "step" ? 1 : Math.max(1, roundStep(this.horizon / LANE_STEPS));
  }

  moment(tick) {
    return this.data.plan.timeUnit === "step" ? String(tick) : showMoment(tick, this.data.plan.timeUnit, this.unit);
  }

  /** Return a duration with as many digits as times have. */
  lasting(ticks) {
    const { timeUnit } = this.data.plan;
    return timeUnit === "step" ? showTime(ticks, timeUnit) : this.moment(ticks);
  }

  /** Return the time at a pixel of a lane, rounded to the lane's unit. */
  tick(d, clientX, floor = true) {
    const { left, width } = this.rows[d].lane.getBoundingClientRect();
    const at = ((clientX - left) / width) * this.horizon;
    return Math.max(0, (floor ? Math.floor : Math.round)(at / this.unit + (floor ? 1e-9 : 0)) * this.unit);
  }

  draw() {
    const { puzzle, data } = this;
    const focused = this.root.getRootNode().activeElement?.dataset?.key;
    const ready = puzzle.ready();
    const ends = ready.map(([b, , start]) => start + puzzle.blocks[b].duration);
    this.horizon = Math.max(data.horizon, Math.max(puzzle.makespan, ...ends, 0) * ROOM);
    if (this.period) this.horizon = Math.max(data.horizon, puzzle.makespan + SHOWN_COPIES * this.period);
    this.copies = this.period ? puzzle.stamped(this.period, Math.ceil(this.horizon / this.period)) : null;
    this.line.textContent = this.says || (puzzle.complete && !data.stamp ? "All runs are placed." : data.begin);
    this.line.classList.toggle("bad", Boolean(this.bad && this.says));
    this.drawAxis();
    puzzle.devices.forEach((_, d) => this.drawDevice(d, ready));
    const { back, anew, hint, step, finish } = this.buttons;
    back.disabled = !this.past.length;
    anew.disabled = !puzzle.placed.size;
    for (const each of [hint, step, finish]) each.disabled = (puzzle.complete && !data.stamp) || Boolean(this.pending);
    if (this.stampButton) this.stampButton.disabled = !puzzle.block;
    const now = puzzle.placed.size || data.stamp ? `ends at ${this.lasting(puzzle.makespan)}` : `${puzzle.runs} runs to place`;
    const left = data.stamp ? (puzzle.block ? `a block of ${puzzle.block}` : "") : puzzle.complete || !puzzle.placed.size ? "" : `${puzzle.runs - puzzle.placed.size} of ${puzzle.runs} to place`;
    this.score.textContent = [left, now, data.least === null ? data.score : `${this.lasting(data.least)} ${data.score}`].filter(Boolean).join(" · ");
    const again = focused && this.root.querySelector(`[data-key="${focused}"]:not(:disabled)`);
    if (again) again.focus({ preventScroll: true });
    else if (focused) this.root.querySelector(".chip.lit")?.focus({ preventScroll: true });
    this.root.dataset.placed = puzzle.placed.size;
  }

  drawAxis() {
    const { timeUnit } = this.data.plan;
    const { ticks, unit } = ticksOf({ from: 0, to: this.horizon }, this.axis.clientWidth, timeUnit, TICK_PIXELS);
    this.axis.textContent = "";
    for (const { at, label } of ticks) {
      const tick = put(this.axis, "span", "");
      tick.style.left = this.share(at);
      tick.textContent = label;
      if (at > (1 - 0.5 * TICK_PIXELS / this.axis.clientWidth) * this.horizon) tick.remove(); // its label would be cut off
    }
    this.unitName.textContent = unit;
    this.root.style.setProperty("--step", this.share(ticks.length > 1 ? ticks[1].at : this.horizon));
  }

  share(ticks) {
    return `${(100 * ticks) / this.horizon}%`;
  }

  drawDevice(d, ready) {
    const { puzzle } = this;
    const { tray, lane, memory, held } = this.rows[d];
    const { capacity, static: always } = puzzle.devices[d];
    tray.textContent = lane.textContent = "";
    for (const b of puzzle.on[d]) {
      const m = puzzle.next(b);
      const may = ready.find(([c]) => c === b);
      const chip = put(tray, "button", may ? "chip lit" : "chip", { type: "button" });
      chip.textContent = this.called(b, m);
      chip.disabled = m === undefined;
      chip.dataset.key = `chip ${b} ${d}`;
      if (m === undefined) continue;
      chip.dataset.run = keyOf(b, m);
      chip.title = may ? `${puzzle.name(b, m)}: can start at ${this.moment(may[2])}, lasts ${showTime(puzzle.blocks[b].duration, this.data.plan.timeUnit)}` : puzzle.stuck(b, m);
      this.paint(chip, b, m);
      chip.addEventListener("pointerenter", () => this.point(keyOf(b, m)));
      chip.addEventListener("focus", () => this.point(keyOf(b, m)));
      this.draggable(chip, b, m, d, () => this.early(b));
    }
    for (const [b, m, start] of puzzle.list()) {
      if (!puzzle.blocks[b].devices.includes(d)) continue;
      const run = this.box(lane, "button", "run", b, start);
      const pixels = (lane.clientWidth * puzzle.blocks[b].duration) / this.horizon;
      run.textContent = this.fitting(b, m, pixels);
      run.title = `${puzzle.name(b, m)}: ${this.moment(start)} – ${this.moment(puzzle.end(b, m))}`;
      run.ariaLabel = run.title;
      run.dataset.key = `run ${b} ${m} ${d}`;
      run.dataset.run = keyOf(b, m);
      this.paint(run, b, m);
      this.draggable(run, b, m, d, () => this.tell(`${run.title}. Drag it or press the arrow keys. Delete removes it.`));
    }
    for (const [b, m, start] of this.copies?.list() ?? []) {
      if (m < puzzle.block || start >= this.horizon || !puzzle.blocks[b].devices.includes(d)) continue;
      const copy = this.box(lane, "i", "run stamp", b, start);
      copy.textContent = this.fitting(b, m, (lane.clientWidth * puzzle.blocks[b].duration) / this.horizon);
      this.paint(copy, b, m);
    }
    if (this.active) {
      const [b, m] = runOf(this.active);
      const start = puzzle.blocks[b].devices.includes(d) && puzzle.start(b, m) === undefined ? puzzle.earliest(b, m) : undefined;
      if (start !== undefined) this.box(lane, "i", "ghost", b, start);
    }
    const levels = (this.copies ?? puzzle).levels(d);
    const last = levels.at(-1)?.[1] ?? always;
    const { unit, tell } = memoryScale(capacity ?? 0, this.data.memoryUnit);
    held.textContent = capacity === null ? "" : `holds ${tell(last)} of ${tell(capacity)} ${unit}`;
    if (memory) this.drawMemory(memory, levels, capacity);
  }

  drawMemory(memory, levels, capacity) {
    memory.textContent = "";
    levels.forEach(([from, amount], i) => {
      if (!amount) return;
      const bar = put(memory, "i", "");
      bar.style.left = this.share(from);
      bar.style.width = this.share((levels[i + 1]?.[0] ?? this.horizon) - from);
      bar.style.height = `${(100 * amount) / Math.max(1, capacity)}%`;
    });
  }

  box(lane, element, name, b, start) {
    const made = put(lane, element, name, element === "button" ? { type: "button" } : {});
    made.style.left = this.share(start);
    made.style.width = this.share(this.puzzle.blocks[b].duration);
    return made;
  }

  paint(element, b, m) {
    const shades = this.data.colours[this.puzzle.blocks[b].kind];
    const [ground, ink] = shades[m % shades.length];
    element.style.setProperty("--ground", ground);
    element.style.setProperty("--ink", ink);
  }

  /** Return the label that fits a run: name and micro-batch in one line or two, or less. */
  fitting(b, m, pixels) {
    const { name } = this.puzzle.blocks[b];
    if (pixels >= NAMED_PIXELS) return this.called(b, m);
    const number = this.puzzle.microBatches > 1 && pixels >= NUMBERED_PIXELS ? String(m) : "";
    return pixels >= NUMBERED_PIXELS && pixels >= LETTER_PIXELS * name.length ? `${name}\n${number}` : number;
  }

  called(b, m) {
    const { name } = this.puzzle.blocks[b];
    return this.puzzle.microBatches === 1 || m === undefined ? name : `${name}·${m}`;
  }

  /** Show where a run would go, without drawing everything again. */
  point(key) {
    if (this.active === key || this.drag) return;
    this.active = key;
    for (const old of this.root.querySelectorAll(".ghost")) old.remove();
    const [b, m] = runOf(key);
    const start = this.puzzle.earliest(b, m);
    if (start === undefined || this.puzzle.start(b, m) !== undefined) return;
    for (const d of this.puzzle.blocks[b].devices) this.box(this.rows[d].lane, "i", "ghost", b, start);
  }

  hover(d, event) {
    for (const { lane } of this.rows) lane.style.removeProperty("--at");
    if (d >= 0 && event.target === this.rows[d].lane) this.rows[d].lane.style.setProperty("--at", this.share(this.tick(d, event.clientX)));
  }

  draggable(element, b, m, d, pressed) {
    element.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const was = this.puzzle.start(b, m);
      const grip = was === undefined ? 0 : event.clientX - element.getBoundingClientRect().left;
      const far = (now) => Math.hypot(now.clientX - event.clientX, now.clientY - event.clientY) > DRAG_PIXELS;
      const move = (now) => {
        if (!this.drag && !far(now)) return;
        this.drag = { ghost: this.drag?.ghost ?? this.box(this.rows[d].lane, "i", "ghost held", b, 0) };
        const start = this.tick(d, now.clientX - grip, was === undefined);
        const why = this.puzzle.whyNot(b, m, start);
        this.drag.start = start;
        this.drag.ghost.style.left = this.share(start);
        this.drag.ghost.classList.toggle("wrong", Boolean(why));
        this.line.textContent = why ? `${why}.` : `${this.puzzle.name(b, m)} at ${this.moment(start)}`;
        this.line.classList.toggle("bad", Boolean(why));
      };
      const end = (now) => {
        removeEventListener("pointermove", move);
        removeEventListener("pointerup", end);
        removeEventListener("pointercancel", end);
        const dragged = this.drag;
        this.drag = null;
        if (!dragged) return;
        this.skip = now.target === this.rows[d].lane; // ignore the click that follows the drop
        setTimeout(() => (this.skip = false));
        dragged.ghost.remove();
        this.dropped = true;
        setTimeout(() => (this.dropped = false));
        if (now.type === "pointercancel") return this.draw();
        const { left, right } = this.rows[d].lane.getBoundingClientRect();
        const on = this.puzzle.blocks[b].devices;
        const beside = ({ top, bottom }) => now.clientY > top - NEAR_PIXELS && now.clientY < bottom + NEAR_PIXELS;
        const inside = on.some((each) => beside(this.rows[each].lane.getBoundingClientRect()));
        if (!inside || (was === undefined && (now.clientX < left || now.clientX > right))) {
          const lanes = on.map((each) => this.puzzle.devices[each].name).join(", ");
          return this.tell(`${this.puzzle.name(b, m)} runs on ${lanes}. Drop it into a lane there.`, true);
        }
        if (was === undefined) this.place(b, m, dragged.start);
        else this.move(b, m, dragged.start);
        this.draw();
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", end);
      addEventListener("pointercancel", end);
    });
    element.addEventListener("click", () => this.dropped || pressed());
  }
}

const TOOLS = [
  ["back", "Undo move", "Undo the last move (Backspace)"],
  ["hint", "Hint", "Show the next hint (h)"],
  ["step", "Step", "Let the coach place the next run (s)"],
  ["finish", "Finish", "Let the coach place the remaining runs"],
  ["anew", "Start over", "Remove all runs from the board"],
];

function put(parent, tag, name, given = {}) {
  const made = parent.appendChild(document.createElement(tag));
  if (name) made.className = name;
  return Object.assign(made, given);
}
