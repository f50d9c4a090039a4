// The timeline component: one or several schedules below each other, gestures and keys, the details of a selection, and
// reports to the server.

import {
  framesOf, heldAt, heldAround, holeAt, idleOf, memoryOf, modelOf, nameOfRun, neighbours, pathOf, rangeFacts, rowOf, rowsOf, stepAlong, upTo,
} from "./data.mjs";
import { isolated, Painter } from "./draw.mjs";
import { momentBeside, narrated, runningAt } from "./play.mjs";
import { SvgPen } from "./svg.mjs";
import { capacityAt, comesFirst, cutsOf, ghosts, gripAt, holdCapacity, holdOf, holdRun, swapOf, whyNot } from "./edit.mjs";
import {
  fitted, grouped, layoutOf, momentAt, panned, partAt, percent, pixelOf, showMemory, showMoment, showSpan, showTime, within, zoomed,
} from "./scale.mjs";

const REPEATED = "Repetend";
export const COLOURS = { kind: "kind", "micro-batch": "micro-batch", block: "block", chunk: "chunk" };
export const LANES = { capacity: "of capacity", held: "of what is held" };
const AT_REST_MS = 400;
const KEPT_MS = 1500;
const PRESS_MS = 1000; // within this time even a busy server has started to run the page
const DRAG_PIXELS = 4;
const LISTED = 6;
const PLAYED_S = 15; // duration of playing a whole schedule
const PAPER_PIXELS = 690; // width within the margins of A4 and of Letter
const PRINTS = ["beforeprint", "afterprint"];
const SPEEDS = { 0.25: "¼×", 0.5: "½×", 1: "1×", 2: "2×", 4: "4×" };
const TITLE_PIXELS = 28;
const MAX_MARKS = 8;
const CUTS = {
  split: ["Split backward", "Split the backward block of its stage into input gradients and weight gradients", "Select a block first", "Its stage has no unsplit backward block of at least two time units"],
  cut: ["Cut in two", "Split its stage into two on the same device, each with half of the time and memory", "Select a block first", "A block of its stage lasts only one time unit and cannot be halved"],
  merge: ["Merge with next", "Join its stage with the next stage on the same device", "Select a block first", "No stage follows on the same device"],
};
const SPAN = /^([0-9]{1,16})-([0-9]{1,16})$/;
const KEYS = [
  ["Ctrl + wheel, pinch, W S", "zoom at the pointer"], ["Shift + drag, A D", "pan"], ["drag", "select a range"],
  ["F", "fit the selection"], ["0", "full range"], ["click", "select a block or a gap"],
  ["Space", "play, pause"], [", .", "step back, forward"], ["[ ]", "previous, next along a dependency"], ["\u2190 \u2192 \u2191 \u2193", "next block, next device"],
  ["Ctrl + F", "find"], ["M", "mark or unmark the selection"], ["Esc", "close, clear the selection"], ["?", "this help"],
];
const CHANGE_KEYS = [
  ["drag a block", "move it; later blocks follow"], ["drag onto another's middle", "swap the two"],
  ["Alt + drag", "move it; all others stay"], ["Alt + \u2190 \u2192", "one unit earlier, later"],
  ["Alt + Shift + \u2190 \u2192", "swap with the previous, next block"], ["P", "pin, unpin"],
];
const EDIT_KEYS = [
  ["drag a block", "move its stage to another device"], ["Alt + drag", "move only the block"], ["drag its end", "change its duration"],
  ["drag a capacity's line or number", "change the device's memory"],
  ["Alt + \u2191 \u2193 \u2190 \u2192", "the same by keys"],
];
const MOVE_KEYS = [["drag a block", "move it to another device, with operators that must share it"], ["Alt + \u2191 \u2193", "the same by keys"]];
const LOOK = ["stages", "moves", "changing", "pins", "circle", "verdict", "refused", "past"]; // parts of a header that do not change its digest

/** Pattern of a place in the address: run 3.17, gap g2.718 (device and time), or range r120-480. */
export function placeOf(text) {
  const found = /^(?:([0-9]{1,7})\.([0-9]{1,7})|g([0-9]{1,7})\.([0-9]{1,16})|r([0-9]{1,16})-([0-9]{1,16}))$/.exec(text);
  if (!found) return null;
  const [, block, microBatch, device, moment, from, to] = found.map((each) => (each === undefined ? -1 : +each));
  if (block >= 0) return { block, microBatch };
  return device >= 0 ? { device, moment } : from < to ? { from, to } : null;
}

/** Return the part of the address that describes the view. */
export function lookInAddress(look, makespan) {
  const whole = look.from <= 0 && look.to >= makespan;
  return {
    time: whole ? "" : `${Math.round(look.from)}-${Math.max(Math.round(look.to), Math.round(look.from) + 1)}`,
    at: look.at ?? "",
    on: look.at && look.on > 1 ? String(look.on) : "",
    colour: look.colour === "kind" ? "" : look.colour,
    lanes: look.lanes === "capacity" ? "" : look.lanes,
    marks: look.marks.map(({ from, to }) => `${Math.round(from)}-${Math.round(to)}`).join("."),
  };
}

/** Return the marked time ranges of an address, limited to 0 … makespan. */
function marksOf(text, makespan) {
  const spans = text.split(".").map((each) => SPAN.exec(each) ?? []);
  return spans.map(([, from, to]) => ({ from: +from, to: +to })).filter(({ from, to }) => from < to && to <= makespan).slice(0, MAX_MARKS);
}

/** Return the view that an address describes. Missing or invalid parts get their defaults. */
export function lookOfAddress(query, makespan) {
  const said = new URLSearchParams(query);
  const span = SPAN.exec(said.get("time") ?? "");
  const at = said.get("at") ?? "";
  const view = span && +span[1] < +span[2] ? { from: +span[1], to: +span[2] } : { from: 0, to: makespan };
  return {
    ...within(view, makespan),
    at: placeOf(at) ? at : "",
    on: /^[1-9][0-9]{0,2}$/.test(said.get("on") ?? "") ? +said.get("on") : 1,
    colour: said.get("colour") in COLOURS ? said.get("colour") : "kind",
    lanes: said.get("lanes") in LANES ? said.get("lanes") : "capacity",
    marks: marksOf(said.get("marks") ?? "", makespan),
  };
}

const NOTHING = { row: -1, path: [], hole: null, range: null, hover: -1, moment: null, chain: [], after: [] };
const timelines = new WeakMap();
const lastLooks = new Map(); // by digests: the latest view in this tab, kept across pages
const told = new Map(); // by digests: the view that was last reported to the server
let pressedAt = -PRESS_MS; // time of the latest press outside the timelines
globalThis.addEventListener?.("click", (event) => event.composedPath().some((each) => timelines.has(each)) || (pressedAt = performance.now()), true);
let followed = false; // the address is read once, as the server does

let printing = false; // timelines that are created while a page is printed are drawn for paper too
for (const each of PRINTS) globalThis.addEventListener?.(each, ({ type }) => (printing = type === "beforeprint"));

export default function (component) {
  const { data, parentElement, setStateValue, setTriggerValue } = component;
  const root = parentElement.querySelector(".timeline");
  if (!root || !data) return undefined;
  try {
    let shown = timelines.get(root);
    if (!shown) timelines.set(root, (shown = new Timeline(root)));
    shown.report = setStateValue;
    shown.send = setTriggerValue;
    shown.take(data);
    return () => shown.end();
  } catch (error) {
    setStateValue("failed", String(error?.message ?? error).slice(0, 200));
    return undefined;
  }
}

/** One schedule with its canvases. */
class Panel {
  constructor(timeline, frame, whole, several) {
    this.model = modelOf(frame);
    this.looked = { ...NOTHING };
    this.root = put(timeline.stage, "div", "panel");
    this.heading = several ? put(this.root, "div", "heading") : null;
    this.canvas = put(this.root, "canvas", "picture");
    this.over = put(this.root, "canvas", "over");
    this.over.tabIndex = 0;
    this.over.setAttribute("role", "application");
    this.over.setAttribute("aria-roledescription", "timeline");
    this.overContext = this.over.getContext("2d");
    this.misfit = put(this.heading ?? this.root, "span", this.heading ? "over-capacity" : "misfit");
    this.painter = new Painter(this.canvas, this.model, whole);
    this.layout = null;
    timeline.listen(this);
    this.tell();
  }

  /** Write the title, the makespan, and whether it fits. */
  tell() {
    const { model } = this;
    const length = showTime(model.makespan, model.timeUnit);
    const name = `Timeline of ${grouped(String(model.count))} ${model.traced ? "operations" : "blocks"} on ${model.devices.length} devices, ${length} long`;
    this.over.setAttribute("aria-label", `${this.heading ? `${model.title}. ` : ""}${name}. Press ? for its keys.`);
    if (this.heading) {
      this.heading.textContent = "";
      title(this.heading, model.title, model.count ? length : "");
      this.heading.appendChild(this.misfit);
    }
    this.misfit.textContent = model.misfit;
    this.misfit.hidden = !model.misfit;
    this.root.classList.toggle("past", Boolean(model.past));
  }

  /** Set the size. Return whether it changed. */
  resize(width, ratio, mapped) {
    const { model, layout, painter } = this;
    if (layout?.width === width && painter.ratio === ratio && layout.laneHeight === model.laneHeight && layout.memoryHeight === model.memoryHeight) return false;
    this.layout = layoutOf(model, width, mapped);
    painter.resize(this.layout, ratio);
    this.over.width = this.canvas.width;
    this.over.height = this.canvas.height;
    this.over.style.height = this.canvas.style.height;
    if (!this.heading) this.misfit.style.top = `${this.layout.memory - 24}px`;
    return true;
  }
}

class Timeline {
  constructor(root) {
    this.root = root;
    this.report = this.send = (_name, _value) => {};
    this.panels = [];
    this.marks = [];
    this.pointers = new Map();
    this.memoryTo = "capacity";
    this.mode = "kind";
    this.asking = "";
    this.held = null; // the drag, until the server has answered
    this.build();
    this.observer = new ResizeObserver(() => this.resize(false));
    this.observer.observe(this.stage);
    this.onSaid = () => this.answered();
    window.addEventListener("tessel-timeline-said", this.onSaid);
    this.onPrint = ({ type }) => this.print(type === "beforeprint");
    for (const each of PRINTS) window.addEventListener(each, this.onPrint);
  }

  end() {
    this.observer.disconnect();
    window.removeEventListener("tessel-timeline-said", this.onSaid);
    for (const each of PRINTS) window.removeEventListener(each, this.onPrint);
    clearTimeout(this.resting);
    cancelAnimationFrame(this.frame);
    timelines.delete(this.root);
  }

  // Only one panel at a time has the selection and gets keys.
  get model() { return this.panel.model; }
  get looked() { return this.panel.looked; }

  /** Show schedules. The same ones again change only colours, titles and heights; others reset the view. */
  take(data) {
    const frames = framesOf(data);
    const digest = frames.map(({ header }) => header.digest).join(" ");
    if (this.digest === digest) {
      const { panels } = this;
      frames.forEach(({ header }, i) => {
        for (const name of ["title", "laneHeight", "memoryHeight", ...LOOK]) panels[i].model[name] = header[name];
        panels[i].tell();
      });
      this.controls();
    } else this.begin(digest, frames);
    if (!this.drag) this.held = null; // keep a drag in progress
    this.root.dataset.of = frames.some(({ header }) => header.past) ? "past" : "present";
    this.themed = null;
    this.resize();
    if (printing) this.print(true);
  }

  begin(digest, frames) {
    if (this.playing) this.stop();
    const keyed = this.panels.some(({ over }) => over === this.root.getRootNode().activeElement);
    const changed = this.held?.blocks.length ? this.model.blocks[this.held.blocks[0]].name : "";
    const moved = this.held?.run;
    const seen = this.held && (this.view.from > 0 || this.view.to < this.whole) ? { ...this.view } : null;
    this.digest = digest;
    this.drag = null; // the dragged run no longer exists
    this.pointers.clear();
    for (const panel of this.panels) panel.root.remove();
    this.whole = Math.max(...frames.map(({ header }) => header.makespan));
    this.panels = frames.map((frame) => new Panel(this, frame, this.whole, frames.length > 1));
    this.root.dataset.digest = digest;
    const news = followed && !lastLooks.has(digest);
    const { quiet } = frames[0].header;
    const look = lastLooks.get(digest) ?? lookOfAddress(followed || quiet ? "" : location.search, this.whole);
    followed ||= !quiet;
    this.panel = this.panels[look.on - 1] ?? this.panels[0];
    if (keyed) this.panel.over.focus({ preventScroll: true });
    this.view = { from: look.from, to: look.to };
    this.mode = look.colour;
    this.memoryTo = look.lanes;
    this.marks = look.marks;
    for (const { painter } of this.panels) painter.setColours(this.mode);
    this.phases();
    this.controls();
    this.complaint.textContent = this.said.textContent = this.asking = "";
    this.tell();
    const again = changed ? this.model.blocks.findIndex(({ name }) => name === changed || name === `${changed}.1`) : -1;
    if (moved) {
      this.view = seen ? within(seen, this.whole) : { from: 0, to: this.whole };
      this.selectRow(rowOf(this.model, ...moved), false);
    } else if (again >= 0) this.selectRow(rowOf(this.model, again, 0), false);
    else if (look.at) this.selectPlace(look.at, false);
    this.legend();
    // Do not report the default view: the server knows it, and a report would run the page again.
    if (quiet) return;
    if (news) intoAddress(lookInAddress(this.look(), this.whole));
    else if (this.addressSaysOther()) this.rest();
  }

  keepAddress() {
    if (timelines.get(this.root) === this && this.root.isConnected && this.addressSaysOther()) intoAddress(lookInAddress(this.look(), this.whole));
  }

  /** Correct an address that still describes another schedule, because a reload would follow it. */
  addressSaysOther() {
    const said = new URLSearchParams(location.search);
    return Object.entries(lookInAddress(this.look(), this.whole)).some(([key, value]) => (said.get(key) ?? "") !== value);
  }

  // ------------------------------------------------------------------ elements of the page

  build() {
    const { root } = this;
    root.textContent = "";
    root.dataset.begun = "yes";
    // Streamlit's frame would scroll. Without scrolling, the details can stick to the window.
    const frame = root.getRootNode().host?.closest("[data-testid=stElementContainer]");
    if (frame) frame.style.overflow = "clip";
    this.bar = put(root, "div", "bar");
    const views = put(this.bar, "div", "views");
    views.setAttribute("role", "group");
    views.setAttribute("aria-label", "Time window");
    this.full = button(views, "Full range", "0", () => this.see({ from: 0, to: this.whole }));
    this.phaseButtons = put(views, "span", "phases");
    this.critical = button(views, "Critical path", "Select the block that ends last and the chain that it waits for", () => this.selectLast());
    this.playButton = button(views, "", "Play the schedule and see what each device does (Space)", () => this.play());
    this.playButton.classList.add("round");
    this.cuts = put(views, "span", "phases");
    this.cutButtons = Object.fromEntries(
      Object.entries(CUTS).map(([name, [text, about]]) => [name, button(this.cuts, text, about, () => this.change(cutsOf(this.model, this.looked.row)[name]))]),
    );
    this.hands = put(views, "span", "phases");
    this.pinOne = button(this.hands, "Pin", "Pin or unpin the selected block (P)", () => this.pin([this.looked.row]));
    this.pinPath = button(this.hands, "Pin micro-batch", "Pin or unpin all blocks of its micro-batch", () => this.pin(this.looked.path));
    this.pinAll = button(this.hands, "Pin all before", "Pin or unpin all blocks that start before the selected one", () => this.pin(this.allBefore()));
    button(this.hands, "Push left", "Start every block as early as the order allows", () => this.change({ does: "left" }));
    this.keeps = select(this.hands, "Pins keep", { start: "their time", order: "their order" }, () => {});
    this.finishes = button(this.hands, "Finish from here", "Search for the best completion around the pins", () => this.change({ does: "finish", by_order: this.keeps.value === "order" }));
    this.finder = put(views, "input", "find");
    this.finder.type = "search";
    this.finder.setAttribute("aria-label", "Find a block of a micro-batch, the longest idle time on a device, or the peak of a device");
    this.finder.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") this.ask(this.finder.value);
    });
    this.legendAt = put(this.bar, "div", "legend");
    const choices = put(this.bar, "div", "choices");
    this.colourSelect = select(choices, "Colour", COLOURS, (value) => this.colourBy(value));
    this.laneSelect = select(choices, "Memory", LANES, (value) => {
      this.memoryTo = value;
      this.draw();
      this.rest();
    });
    button(choices, "PNG", "Save the current view as an image", () => this.save());
    button(choices, "SVG", "Save the current view as vector graphics", () => this.saveLines());
    button(choices, "?", "Keys and gestures", () => this.help()).classList.add("round");
    this.verdict = put(root, "div", "verdict");
    this.verdict.setAttribute("role", "status");
    this.stage = put(root, "div", "stage");
    this.tip = put(this.stage, "div", "tip");
    this.tip.hidden = true;
    this.keys = put(this.stage, "div", "keys");
    this.keys.hidden = true;
    this.keys.setAttribute("role", "dialog");
    this.keys.setAttribute("aria-label", "Keys and gestures");
    const details = put(root, "div", "details");
    details.setAttribute("role", "status");
    details.setAttribute("aria-live", "polite");
    this.details = details;
    this.played = put(details, "div", "played");
    this.played.hidden = true;
    button(this.played, "◂", "Step back (,)", () => this.step(-1));
    this.playPause = button(this.played, "Pause", "Space", () => this.play());
    button(this.played, "▸", "Step forward (.)", () => this.step(1));
    this.speed = select(this.played, "Speed", SPEEDS, () => {});
    this.speed.value = 1;
    button(this.played, "Stop", "Esc", () => this.stop());
    this.playedAt = put(this.played, "span", "soft");
    this.sayPlaying();
    this.card = put(details, "div", "card");
    this.complaint = put(details, "p", "complaint");
    this.said = put(details, "div", "said");
    this.root.addEventListener("keydown", (event) => this.key(event));
  }

  /** Update the choices. Memory has one if memory lanes are shown. */
  controls() {
    this.colourSelect.value = this.mode;
    this.laneSelect.value = this.memoryTo;
    const { traced } = this.model;
    this.finder.hidden = traced || Boolean(this.model.changing); // the Program page has its own search
    if (!traced) this.finder.placeholder = `Find: ${this.model.blocks.at(-1).name} of 0, longest idle time on ${this.model.devices[0].name} \u2026`;
    this.keys.textContent = "";
    const { stages, moves, changing, verdict, refused } = this.model;
    this.root.classList.toggle("by-hand", Boolean(stages || moves || changing));
    this.cuts.hidden = !stages;
    this.critical.hidden = this.phaseButtons.hidden = this.playButton.hidden = Boolean(changing);
    this.hands.hidden = !changing;
    this.verdict.hidden = !changing && !moves;
    this.root.classList.toggle("changing", Boolean(changing));
    this.judge(verdict ?? "", refused);
    for (const [key, does] of [...(stages ? EDIT_KEYS : moves ? MOVE_KEYS : changing ? CHANGE_KEYS : []), ...KEYS]) {
      if (traced && key === "Ctrl + F") continue;
      put(this.keys, "kbd", "", key);
      put(this.keys, "span", "", does);
    }
    this.tools();
    this.laneSelect.parentElement.hidden = !this.panels.some(({ model }) => model.memoryHeight);
  }

  /** Show the effect of the latest change, or why it was refused. */
  judge(verdict, refused) {
    const { moves } = this.model;
    const hint = moves?.of.length ? "Drag operators from one device to another." : "There are too many operators to drag. Group them.";
    this.verdict.textContent = this.verdict.title = verdict || (moves ? hint : "The effect of a change appears here.");
    this.verdict.classList.toggle("refused", Boolean(refused));
  }

  phases() {
    this.phaseButtons.textContent = "";
    const steadily = this.panels.find(({ model }) => model.steady);
    if (!steadily) return;
    const { steady, makespan } = steadily.model;
    const opened = Math.max(...steady.windows.map(([opens]) => opens));
    const closed = Math.min(...steady.windows.map(([, closes]) => closes));
    const repeats = Math.min(steady.closes, steady.opens + 3 * steady.period);
    const windows = { Warmup: [0, opened], [REPEATED]: [steady.opens, repeats], Cooldown: [closed, makespan] };
    for (const [name, [from, to]] of Object.entries(windows)) {
      if (to > from) button(this.phaseButtons, name, `Show the ${name.toLowerCase()}${name === REPEATED ? " (repetend)" : ""}`, () => this.see({ from, to }));
    }
  }

  legend() {
    this.legendAt.textContent = "";
    const { model, mode } = this;
    this.legendAt.classList.toggle("bare", mode !== "kind");
    const used = new Set(this.panels.flatMap((panel) => panel.model.blocks.map((each) => each.kind)));
    model.kinds.forEach(([name, colour], kind) => {
      if (!used.has(kind)) return;
      const entry = put(this.legendAt, "span", `kind kind${kind}`);
      const chip = put(entry, "i", "");
      chip.style.backgroundColor = mode === "kind" ? colour : "transparent";
      put(entry, "span", "", name);
    });
  }

  /** Adapt to the available width, and paint if it has changed or with `anyway`. */
  resize(anyway = true) {
    const width = Math.floor(this.stage.clientWidth);
    if (!this.panels.length || width < 40) return;
    const ratio = Math.min(3, Math.max(1, window.devicePixelRatio || 1));
    const news = this.panels.map((panel, i) => panel.resize(width, ratio, i === 0));
    if (anyway || news.includes(true)) this.paint();
  }

  /** Prepare for printing: black on white, as wide as a page, and as SVG, because canvases would be drawn too late. */
  print(on) {
    this.paper?.remove();
    this.printing = on;
    this.themed = null;
    this.root.style.width = on ? `${PAPER_PIXELS}px` : "";
    this.resize();
    if (!on) return;
    this.paper = put(this.root, "div", "paper");
    this.paper.append(new DOMParser().parseFromString(this.lines(), "image/svg+xml").documentElement);
    this.stage.after(this.paper);
  }

  /** Read the colours of the page's theme, once per theme. */
  theme() {
    if (this.themed) return this.themed;
    const style = getComputedStyle(this.root);
    const read = (name, otherwise) => (this.printing ? "" : style.getPropertyValue(name).trim()) || otherwise;
    const ground = hex(read("--st-background-color", "#ffffff"), "#ffffff");
    const text = hex(read("--st-text-color", "#1b232c"), "#1b232c");
    const dark = parseInt(ground.slice(1, 3), 16) < 128;
    this.root.dataset.theme = dark ? "dark" : "light";
    this.themed = {
      ground, text, dark,
      soft: mixed(text, ground, 0.35),
      grid: mixed(text, ground, 0.88), lane: mixed(text, ground, 0.955), hatch: mixed(text, ground, 0.8),
      veil: dark ? "rgba(17, 22, 29, 0.72)" : "rgba(255, 255, 255, 0.74)",
      accent: hex(read("--st-primary-color", "#0072b2"), "#0072b2"),
      mark: dark ? "#c9a2ff" : "#7a3fc0", limit: dark ? "#ff8a3d" : "#b34700",
      needs: dark ? "#ff8a3d" : "#c94f00", feeds: dark ? "#5fd3a8" : "#00795a",
      font: read("--st-font", "sans-serif"),
    };
    return this.themed;
  }

  /** Schedule one drawing for all changes until then. */
  draw() {
    this.stale = true;
    this.overSoon();
  }

  overSoon() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.stale) this.paint();
      else this.paintOver();
    });
  }

  paint() {
    if (!this.panel?.layout) return;
    this.stale = false;
    for (const { painter } of this.panels) painter.paint(this.view, this.theme(), this.memoryTo);
    this.paintOver();
    this.full.disabled = this.view.from <= 0 && this.view.to >= this.whole;
    this.root.dataset.view = `${this.view.from} ${this.view.to}`;
    this.root.dataset.painted = String(Number(this.root.dataset.painted ?? 0) + 1);
  }

  paintOver() {
    for (const { painter, overContext, looked } of this.panels) painter.paintOver(overContext, this.view, looked, this.marks);
    for (const { painter, overContext, model } of this.panels) {
      painter.pins(overContext, this.view, rowsOf(model, model.pins));
      painter.circle(overContext, this.view, rowsOf(model, model.circle));
      if (this.playing) painter.playing(overContext, this.view, this.playing.at, runningAt(model, this.playing.at));
    }
    if (this.held) this.panel.painter.hold(this.panel.overContext, this.view, { ...this.held, ghosts: this.held.ghosts ?? ghosts(this.model, this.held) });
  }

  // ------------------------------------------------------------------ view and selection

  see(view) {
    this.view = within(view, this.whole);
    this.draw();
    this.rest();
  }

  colourBy(mode) {
    this.mode = mode;
    for (const { painter } of this.panels) painter.setColours(mode);
    this.legend();
    this.draw();
    this.rest();
  }

  /** Select in one panel, and clear the selection of the others. A range is selected in all panels. */
  select(what) {
    if (this.playing) this.stop();
    for (const panel of this.panels) {
      const { hover, moment } = panel.looked;
      panel.looked = { ...NOTHING, hover, moment, ...(panel === this.panel || what.range ? what : {}) };
    }
    this.complaint.textContent = "";
    this.tell();
    this.answered();
    this.overSoon();
    this.rest();
  }

  selectRow(row, seen = true) {
    if (row < 0) return this.tell();
    this.select({ row, path: pathOf(this.model, row) });
    if (seen) this.bringIntoView(this.model.start[row], this.model.end[row]);
  }

  /** Select a place, if it exists. */
  selectPlace(text, seen = true) {
    const place = placeOf(text);
    const { model, whole } = this;
    if (!place) return;
    if ("block" in place) this.selectRow(rowOf(model, place.block, place.microBatch), seen);
    else if ("device" in place) {
      const hole = place.device < model.lanes.length ? holeAt(model, model.lanes[place.device], place.moment) : null;
      if (hole) this.select({ hole });
      if (hole && seen) this.bringIntoView(hole.from, hole.to);
    } else if (place.from < whole) {
      this.select({ range: { from: place.from, to: Math.min(place.to, whole) } });
      if (seen) this.bringIntoView(place.from, place.to);
    }
  }

  look() {
    return { from: this.view.from, to: this.view.to, at: this.place(), on: this.panels.indexOf(this.panel) + 1, colour: this.mode, lanes: this.memoryTo, marks: this.marks };
  }

  /** The selected place, as in the address. */
  place() {
    const { row, hole, range } = this.looked;
    if (row >= 0) return nameOfRun(this.model, row).join(".");
    if (hole) return `g${hole.lane}.${Math.round(hole.from)}`;
    return range ? `r${Math.round(range.from)}-${Math.round(range.to)}` : "";
  }

  /** Select the block that ends last. Its chain of waits leads back to the start. */
  selectLast() {
    const { end, count } = this.model;
    let last = 0;
    for (let row = 1; row < count; row++) if (end[row] > end[last]) last = row;
    this.selectRow(last, false);
  }

  /** Ask the server to find a place by a few words. */
  ask(text) {
    this.complaint.textContent = "";
    if (!text.trim()) return;
    this.asking = `${Date.now() % 1e9} ${text.trim().slice(0, 400)}`;
    told.delete(this.digest);
    this.rest();
  }

  /** Pan, and zoom if necessary, to make a time range visible. */
  bringIntoView(from, to) {
    const span = this.view.to - this.view.from;
    if (to - from > span) this.see(fitted(from, to, this.whole));
    else if (from < this.view.from || to > this.view.to) {
      const middle = (from + to) / 2;
      this.see({ from: middle - span / 2, to: middle + span / 2 });
    }
  }

  fit() {
    const { row, hole, range, path } = this.looked;
    const { start, end } = this.model;
    const { whole } = this;
    if (range || hole) return this.see(fitted((range ?? hole).from, (range ?? hole).to, whole));
    if (row < 0) return this.see({ from: 0, to: whole });
    const once = fitted(start[row], end[row], whole);
    const close = Math.abs(this.view.from - once.from) + Math.abs(this.view.to - once.to) < 1e-6 * whole + 1;
    // Pressed again: show the whole path of the micro-batch.
    const ends = path.reduce((most, each) => Math.max(most, end[each]), 0);
    return this.see(close ? fitted(start[path[0]], ends, whole) : once);
  }

  mark() {
    const { row, hole, range } = this.looked;
    const span = range ?? hole ?? (row >= 0 ? { from: this.model.start[row], to: this.model.end[row] } : null);
    if (!span) return;
    const others = this.marks.filter((each) => each.from !== span.from || each.to !== span.to);
    this.marks = others.length < this.marks.length ? others : [...this.marks, { from: span.from, to: span.to }].slice(-MAX_MARKS);
    this.overSoon();
    this.rest();
  }

  walk(which) {
    if (this.looked.row < 0) return this.selectRow(this.firstSeen());
    const { chain, after } = this.looked; // for a simulation, only the server knows the chain of waits
    const row = this.model.traced ? (which === "needs" ? chain[1] : after[0]) ?? -1 : stepAlong(this.model, this.looked.row, which);
    return row >= 0 ? this.selectRow(row) : undefined;
  }

  firstSeen() {
    return Math.min(this.model.count - 1, upTo(this.model.start, this.view.from - 1));
  }

  /** Select the previous or next run on the device, or the run at that time on the device above or below. */
  move(along, across) {
    const { model } = this;
    const { row } = this.looked;
    if (row < 0) return this.selectRow(this.firstSeen());
    const devices = model.on[model.which[row]];
    const d = across > 0 ? devices[devices.length - 1] + 1 : devices[0] + across;
    if (d < 0 || d >= model.lanes.length) return undefined;
    const lane = model.lanes[d];
    const at = across ? upTo(lane.start, model.start[row]) - 1 : upTo(lane.start, model.start[row]) - 1 + along;
    const to = across ? Math.max(0, at) : at;
    return to >= 0 && to < lane.rows.length ? this.selectRow(lane.rows[to]) : undefined;
  }

  /** Report the view: to the address at once, and to the server after a short pause without changes. */
  rest() {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => {
      if (this.model.quiet) return undefined;
      if (this.pointers.size || pageRuns()) return this.rest();
      const look = this.look();
      lastLooks.set(this.digest, look);
      const reported = { of: this.model.digest, ask: this.asking, ...lookInAddress(look, this.whole) };
      const text = JSON.stringify(reported);
      intoAddress(reported);
      if (text === told.get(this.digest)) return undefined;
      told.set(this.digest, text);
      setTimeout(() => this.keepAddress(), KEPT_MS); // a page run that started earlier may write an older address
      return this.report("look", reported);
    }, AT_REST_MS);
  }

  // ------------------------------------------------------------------ play

  /** Play or pause. Start at the selected block if nothing has been played yet. */
  play() {
    const { row } = this.looked;
    const from = this.playing?.at ?? (row >= 0 ? this.model.start[row] : 0);
    const runs = !this.playing?.runs;
    if (!this.playing) this.select({});
    this.playing = { at: runs && from >= this.whole ? 0 : from, runs, before: performance.now() };
    if (runs) requestAnimationFrame((now) => this.sweep(now));
    this.showPlayed();
  }

  sweep(now) {
    const { playing } = this;
    if (!playing?.runs || !this.root.isConnected) return;
    playing.at = Math.min(this.whole, playing.at + ((Math.max(0, now - playing.before) / 1000) * this.whole * +this.speed.value) / PLAYED_S);
    playing.before = now;
    playing.runs = playing.at < this.whole;
    this.showPlayed();
    if (playing.runs) requestAnimationFrame((then) => this.sweep(then));
  }

  /** Go to the next or the previous time at which a run begins or ends. */
  step(by) {
    if (!this.playing) this.play();
    this.playing.runs = false;
    this.playing.at = momentBeside(this.model, this.playing.at, by);
    this.showPlayed();
  }

  stop() {
    this.playing = null;
    this.showPlayed();
    this.tell();
  }

  showPlayed() {
    const { playing, view } = this;
    this.played.hidden = !playing;
    this.details.setAttribute("aria-live", playing?.runs ? "off" : "polite");
    this.sayPlaying();
    this.overSoon();
    if (!playing) return;
    const span = view.to - view.from;
    if (playing.at > view.to || playing.at < view.from) this.see({ from: playing.at, to: playing.at + span });
    this.playedAt.textContent = `at ${showMoment(playing.at, this.model.timeUnit, Math.max(1, this.whole / 200))}`;
    this.tell();
  }

  sayPlaying() {
    const does = this.playing?.runs ? "Pause" : "Play";
    this.playPause.textContent = does;
    this.playButton.textContent = this.playing?.runs ? "❚❚" : "▶";
    this.playButton.setAttribute("aria-label", does);
  }

  /** Update the text of what each device does. */
  tellPlayed() {
    const story = narrated(this.model, this.playing.at, (row) => this.linkTo(row));
    const text = story.map((each) => each.join(" ")).join("\n");
    if (this.card.dataset.story === text) return;
    this.card.textContent = "";
    this.card.dataset.story = text;
    const lines = put(this.card, "div", "story");
    for (const [name, does] of story) {
      const line = put(lines, "p", "");
      put(line, "b", "", `${isolated(shortName(name))} `);
      put(line, "span", "", does);
    }
  }

  // ------------------------------------------------------------------ details

  /** Show the details of the selection or of the played time. */
  tell() {
    const { looked } = this;
    if (this.playing) return this.tellPlayed();
    delete this.card.dataset.story;
    this.card.textContent = "";
    if (looked.row >= 0) this.tellRun(looked.row);
    else if (looked.hole) this.tellHole(looked.hole);
    else if (looked.range) for (const panel of this.panels) this.tellRange(looked.range, panel);
    else {
      const hint = this.model.stages
        ? "Drag a block to move its stage to another device (Alt: only the block). Drag its end to change its duration, or a memory line to change a capacity."
        : this.model.changing
          ? "Drag a block to another time, or onto another block to swap the two. Later blocks follow (Alt: all others stay). Pin blocks, then press Finish from here."
          : "Click a block or a gap for details. Drag to select a range. Ctrl + wheel zooms. ? shows all keys.";
      put(this.card, "p", "hint", hint);
    }
    this.tools();
    this.root.dataset.selected = looked.row >= 0 ? "run" : looked.hole ? "hole" : looked.range ? "range" : "";
  }

  /** Update the buttons for changes by hand for the selection. */
  tools() {
    const { looked } = this;
    for (const made of [this.pinOne, this.pinPath, this.pinAll]) made.disabled = looked.row < 0;
    this.finishes.disabled = !this.model.pins?.length;
    const cuts = this.model.stages ? cutsOf(this.model, looked.row) : {};
    for (const [name, made] of Object.entries(this.cutButtons)) {
      made.disabled = !cuts[name];
      made.title = CUTS[name][cuts[name] ? 1 : looked.row < 0 ? 2 : 3];
    }
  }

  /** Add the name of the schedule to a title if there are several. */
  among(text) {
    return this.panels.length > 1 ? `${text} · ${this.model.title}` : text;
  }

  tellRun(row) {
    const { model } = this;
    const block = model.blocks[model.block[row]];
    const unit = model.timeUnit;
    const batch = block.alone ? "" : `, micro-batch ${model.microBatch[row]}`;
    title(this.card, block.title ?? block.name, `${model.kinds[block.kind][0]}${batch}${this.phaseOf(row)}${this.among("")}`);
    const facts = put(this.card, "dl", "");
    fact(facts, "Time", showSpan(model.start[row], model.end[row], unit), showTime(model.end[row] - model.start[row], unit));
    const devices = model.on[model.which[row]].map((lane) => model.lanes[lane].device);
    fact(facts, devices.length > 1 ? "Devices" : "Device", listed(devices.map((d) => model.devices[d].name)));
    if (model.measured) return;
    const held = devices.map((d) => [d, heldAround(model, model.stores[d], row)]);
    const tell = ([d, each]) => `${held.length > 1 ? `${shortName(model.devices[d].name)} ` : ""}${showMemory(each.before, model.memoryUnit)} → ${showMemory(each.after, model.memoryUnit)}`;
    fact(facts, "Memory before → after", listed(held.map(tell), held.length > 1 ? 2 : 1));
    if (model.traced) return void fact(facts, "Operation", grouped(String(model.operation[row])));
    this.runsAsLinks(facts, "Needs", neighbours(model, row, "needs"), row);
    this.runsAsLinks(facts, "Needed by", neighbours(model, row, "feeds"), row);
  }

  phaseOf(row, { phase } = this.model) {
    return phase ? `, ${["warmup", "repetend", "cooldown"][phase[row]]}` : "";
  }

  runsAsLinks(facts, name, found, from) {
    const place = fact(facts, name, found.length ? "" : "nothing");
    found.slice(0, LISTED).forEach(({ row, lag }, i) => {
      const { model } = this;
      const link = button(place, shortName(model.blocks[model.block[row]].name), "Select this block", () => this.selectRow(row));
      link.className = "link";
      const gap = name === "Needs" ? model.start[from] - model.end[row] - lag : model.start[row] - model.end[from] - lag;
      const waits = gap > 0 ? `${showTime(gap, model.timeUnit)} between` : "at once";
      put(place, "span", "soft", ` ${lag ? `lag ${showTime(lag, model.timeUnit)}, ` : ""}${waits}${i + 1 < Math.min(found.length, LISTED) ? "; " : ""}`);
    });
    if (found.length > LISTED) put(place, "span", "soft", ` and ${found.length - LISTED} more`);
  }

  tellHole(hole) {
    const { model } = this;
    const unit = model.timeUnit;
    const length = hole.to - hole.from;
    const lane = model.lanes[hole.lane];
    title(this.card, `${lane.communicates ? "No communication" : "Idle"} on ${model.devices[lane.device].name}`, this.among(showTime(length, unit)));
    const facts = put(this.card, "dl", "");
    fact(facts, "Time", showSpan(hole.from, hole.to, unit));
    const idle = idleOf(model);
    if (!lane.communicates) fact(facts, "Share", `${percent(length / idle)} of all idle time, ${percent(length / model.makespan)} of the schedule`);
    const { rows } = lane;
    const named = (at, otherwise) => (at >= 0 && at < rows.length ? this.nameOf(rows[at]) : otherwise);
    fact(facts, "Between", `${named(hole.before, "the beginning")} and ${named(hole.after, "the end")}`);
    if (!model.measured) fact(facts, "Held meanwhile", showMemory(heldAt(model, model.stores[lane.device], hole.from), model.memoryUnit));
  }

  /** Show a time range in one panel, up to the end of its schedule. */
  tellRange(range, { model, heading }) {
    const unit = model.timeUnit;
    const { from } = range;
    const to = Math.min(range.to, model.makespan);
    title(this.card, heading ? model.title : "Range", to > from ? showTime(to - from, unit) : "has ended");
    if (to <= from) return;
    const found = rangeFacts(model, from, to);
    const facts = put(this.card, "dl", "");
    fact(facts, "Time", showSpan(from, to, unit));
    const all = found.length * model.devices.length;
    fact(facts, "Busy / idle", `${percent(found.busy / all)} / ${percent(found.idle / all)}`, "mean over the devices");
    fact(facts, "Idles most", isolated(shortName(model.devices[found.idlest.device].name)), percent(found.idlest.idle / found.length));
    if (model.measured) return;
    const { device, held } = found.fullest;
    const may = model.devices[device].capacity;
    fact(facts, "Peak memory", `${showMemory(held, model.memoryUnit)} on ${isolated(shortName(model.devices[device].name))}`, may === null ? "" : `of ${showMemory(may, model.memoryUnit)}`);
  }

  nameOf(row, model = this.model) {
    const { name, alone } = model.blocks[model.block[row]];
    return isolated(shortName(name)) + (alone ? "" : ` · ${model.microBatch[row]}`);
  }

  /** Take a message from the server by way of `said.mjs`: lines of [name, parts], a chain of runs, or a found place. */
  answered() {
    const said = window.tesselTimelineSaid;
    this.said.textContent = "";
    const [of, wanted] = (said?.wanted ?? "").split(" ");
    if (this.panel && wanted && of === this.model.digest && said.wanted !== this.wanted) {
      this.wanted = said.wanted;
      if (wanted === "none") return this.select({});
      if (wanted !== this.place()) return this.selectPlace(wanted);
    }
    if (!this.panel || said?.of !== this.model.digest) return;
    Object.assign(this.looked, { chain: [], after: [] });
    const { model } = this;
    if (said.found && this.asking && said.found.asked === this.asking) {
      this.asking = "";
      this.complaint.textContent = said.found.complaint;
      if (said.found.place) return this.selectPlace(said.found.place);
    }
    const at = this.place();
    if (!at || said.at !== at) return;
    for (const [name, parts] of said.lines) {
      const line = put(this.said, "p", "");
      put(line, "b", "", `${name} `);
      for (const part of parts) {
        if (typeof part === "string") put(line, "span", "", part);
        else this.runAsLink(line, rowOf(model, part[0], part[1]));
      }
    }
    Object.assign(this.looked, { chain: rowsOf(model, said.chain), after: rowsOf(model, said.after) });
    this.overSoon();
  }

  runAsLink(parent, row) {
    if (row < 0) return;
    const link = button(parent, this.linkTo(row), "Select this block", () => this.selectRow(row));
    link.className = "link";
  }

  linkTo(row) {
    const { name, alone } = this.model.blocks[this.model.block[row]];
    return alone ? shortName(name) : `${shortName(name)} of ${this.model.microBatch[row]}`;
  }

  /** Save the panels below each other, with titles, as one image in the screen's resolution. */
  save() {
    const { panels } = this;
    const themed = this.theme();
    const ratio = panels[0].painter.ratio;
    const titled = (panel) => (panel.heading ? TITLE_PIXELS : 0);
    const sheet = document.createElement("canvas");
    sheet.width = panels[0].canvas.width;
    sheet.height = panels.reduce((sum, panel) => sum + panel.canvas.height + titled(panel) * ratio, 0);
    const c = sheet.getContext("2d");
    c.fillStyle = themed.ground;
    c.fillRect(0, 0, sheet.width, sheet.height);
    let y = 0;
    for (const panel of panels) {
      if (panel.heading) {
        c.fillStyle = themed.text;
        c.font = `600 ${14 * ratio}px ${themed.font}`;
        c.fillText(panel.model.title, 8 * ratio, y + 18 * ratio);
      }
      y += titled(panel) * ratio;
      c.drawImage(panel.canvas, 0, y);
      c.drawImage(panel.over, 0, y);
      y += panel.canvas.height;
    }
    handOut(sheet.toDataURL("image/png"), "timeline.png");
  }

  /** Save the panels as SVG. Runs that are too short for a separate bar are embedded as an image. */
  saveLines() {
    const address = URL.createObjectURL(new Blob([this.lines()], { type: "image/svg+xml" }));
    handOut(address, "timeline.svg");
    URL.revokeObjectURL(address);
  }

  /** Return the panels below each other, with titles, as SVG. */
  lines() {
    const { panels, view, memoryTo, marks } = this;
    const themed = this.theme();
    const pen = new SvgPen();
    let y = 0;
    for (const { painter, model, layout, looked, heading } of panels) {
      if (heading) Object.assign(pen, { fillStyle: themed.text, font: `600 14px ${themed.font}`, textAlign: "left" });
      if (heading) pen.fillText(model.title, 8, y + 14);
      y += heading ? TITLE_PIXELS : 0;
      pen.parts.push(`<g transform="translate(0 ${y})">`);
      const canvas = painter.context;
      painter.context = pen;
      painter.paint(view, themed, memoryTo);
      painter.context = canvas;
      painter.paintOver(pen, view, looked, marks);
      pen.parts.push("</g>");
      y += layout.height;
    }
    const size = `width="${panels[0].layout.width}" height="${y}"`;
    const ground = `<rect ${size} fill="${themed.ground}"/>`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size}>${ground}${pen.parts.join("\n")}</svg>`;
  }

  help() {
    this.keys.hidden = !this.keys.hidden;
  }

  // ------------------------------------------------------------------ hover

  hoverAt(panel, x, y) {
    const found = this.find(panel, x, y);
    const moment = found.part === "work" || found.part === "memory" || found.part === "between" ? found.at : null;
    for (const each of this.panels) Object.assign(each.looked, { hover: each === panel ? found.row : -1, moment });
    this.overSoon();
    this.showTip(panel, found, x, y);
    const seized = found.row >= 0 ? this.grip(panel, found.row, x) : "";
    if (this.store(panel, x, y) >= 0) panel.over.style.cursor = "ns-resize";
    else panel.over.style.cursor = found.part === "map" || seized === "move" ? "grab" : seized ? "ew-resize" : found.row >= 0 ? "pointer" : "crosshair";
  }

  showTip({ model, layout, root, over }, found, x, y) {
    const { tip } = this;
    root.appendChild(tip);
    tip.textContent = "";
    const unit = model.timeUnit;
    if (found.row >= 0) {
      const block = model.blocks[model.block[found.row]];
      const { device } = model.lanes[found.lane];
      const lasts = model.end[found.row] - model.start[found.row];
      put(tip, "b", "", this.nameOf(found.row, model));
      put(tip, "span", "soft", ` ${model.kinds[block.kind][0]}${this.phaseOf(found.row, model)}`);
      put(tip, "div", "", `${showSpan(model.start[found.row], model.end[found.row], unit)} (${showTime(lasts, unit)})`);
      const { after } = heldAround(model, model.stores[device], found.row);
      put(tip, "div", "soft", `${isolated(shortName(model.devices[device].name))} holds ${showMemory(after, model.memoryUnit)} after`);
    } else if (found.hole) {
      put(tip, "b", "", "idle");
      put(tip, "span", "soft", ` ${isolated(shortName(model.lanes[found.lane].name))}, ${showTime(found.hole.to - found.hole.from, unit)}`);
    } else if (found.part === "memory") {
      const { times, levels } = memoryOf(model, model.stores[found.lane]);
      const step = Math.max(0, upTo(times, found.at) - 1);
      put(tip, "b", "", isolated(shortName(model.devices[found.lane].name)));
      put(tip, "span", "", ` holds ${showMemory(levels[step], model.memoryUnit)}`);
      put(tip, "div", "soft", `from ${showMoment(times[step], unit, (times[step + 1] ?? model.makespan) - times[step])}`);
    }
    tip.hidden = !tip.childElementCount;
    if (!tip.hidden) this.tipAt(layout, over, x, y);
  }

  /** Place the tooltip beside a point, within the picture. */
  tipAt(layout, over, x, y) {
    const { tip } = this;
    tip.hidden = false;
    const width = tip.offsetWidth;
    const height = tip.offsetHeight;
    const left = x + 14 + width > layout.width ? x - width - 10 : x + 14;
    const top = y + 18 + height > layout.height ? y - height - 8 : y + 18;
    tip.style.transform = `translate(${Math.round(Math.max(0, left))}px, ${Math.round(Math.max(0, top) + over.offsetTop)}px)`;
  }

  hideTip() {
    this.tip.hidden = true;
    for (const { looked } of this.panels) Object.assign(looked, { hover: -1, moment: null });
    this.overSoon();
  }

  /** Return what is at a point: part of the picture, lane, time, and a run or a gap. */
  find({ model, layout }, x, y) {
    const { part, lane } = partAt(layout, x, y);
    const at = Math.max(0, Math.min(this.whole, momentAt(layout, this.view, Math.min(layout.right, Math.max(layout.left, x)))));
    const found = { part, lane, at, row: -1, hole: null };
    if (part !== "work") return found;
    const its = model.lanes[lane];
    const i = upTo(its.start, at) - 1;
    if (i >= 0 && at < its.end[i]) return { ...found, row: its.rows[i] };
    return { ...found, hole: holeAt(model, its, at) };
  }

  // ------------------------------------------------------------------ gestures and keys

  /** Listen to the events of a panel. */
  listen(panel) {
    const { over } = panel;
    over.addEventListener("wheel", (event) => this.wheel(panel, event), { passive: false });
    over.addEventListener("pointerdown", (event) => this.down(panel, event));
    over.addEventListener("pointermove", (event) => this.moved(panel, event));
    for (const name of ["pointerup", "pointercancel"]) over.addEventListener(name, (event) => this.up(panel, event));
    over.addEventListener("pointerleave", () => this.hideTip());
    over.addEventListener("focus", () => this.turnTo(panel));
    over.addEventListener("dblclick", () => this.fit());
  }

  /** Make this the panel that gets keys and selections. */
  turnTo(panel) {
    if (this.panel === panel) return;
    const { range } = this.looked;
    this.panel = panel;
    this.select(range ? { range } : {});
  }

  point({ over }, event) {
    const box = over.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  wheel(panel, event) {
    const { layout } = panel;
    const { x } = this.point(panel, event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const by = event.deltaMode === 1 ? 16 * event.deltaY : event.deltaY;
      const factor = Math.exp(Math.max(-1, Math.min(1, by * 0.0035)));
      this.see(zoomed(this.view, momentAt(layout, this.view, x), factor, this.whole));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const by = event.deltaX || event.deltaY;
      this.see(panned(this.view, by / (layout.right - layout.left), this.whole));
    }
  }

  down(panel, event) {
    if (event.button > 0) return;
    const at = this.point(panel, event);
    panel.over.classList.add("by-pointer"); // the focus ring is only for keyboard users
    panel.over.focus({ preventScroll: true });
    this.turnTo(panel);
    panel.over.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, at);
    this.hideTip();
    const { part, row, lane } = this.find(panel, at.x, at.y);
    const touch = event.pointerType === "touch";
    const store = this.store(panel, at.x, at.y);
    const seized = event.shiftKey ? "" : store >= 0 ? "capacity" : row >= 0 ? this.grip(panel, row, at.x) : "";
    const does = part === "map" ? "map" : seized || (event.shiftKey || touch ? "pan" : "range");
    this.drag = { ...at, view: this.view, does, moved: false, distance: 0, row, lane: store >= 0 ? store : lane, alone: event.altKey, seized };
    if (does === "map") this.toMap(panel, at.x);
    if (this.pointers.size === 2) {
      const [a, b] = [...this.pointers.values()];
      this.drag = { does: "pinch", view: this.view, moved: true, distance: Math.max(10, Math.abs(a.x - b.x)), x: (a.x + b.x) / 2 };
    }
  }

  moved(panel, event) {
    const { layout } = panel;
    const at = this.point(panel, event);
    const drag = this.drag;
    if (!this.pointers.has(event.pointerId) || !drag) return this.hoverAt(panel, at.x, at.y);
    this.pointers.set(event.pointerId, at);
    const wide = layout.right - layout.left;
    if (drag.does === "pinch" && this.pointers.size === 2) {
      const [a, b] = [...this.pointers.values()];
      const span = drag.distance / Math.max(10, Math.abs(a.x - b.x));
      const under = momentAt(layout, drag.view, drag.x);
      const near = zoomed(drag.view, under, span, this.whole);
      return this.see(panned(near, (drag.x - (a.x + b.x) / 2) / wide, this.whole));
    }
    if (drag.does === "pinch") return undefined; // ignore the remaining finger
    if (!drag.moved && Math.abs(at.x - drag.x) < DRAG_PIXELS && !(drag.seized && Math.abs(at.y - drag.y) >= DRAG_PIXELS)) return undefined;
    drag.moved = true;
    if (drag.seized) return this.hold(panel, at, event.altKey);
    if (drag.does === "map") return this.toMap(panel, at.x);
    if (drag.does === "pan") return this.see(panned(drag.view, (drag.x - at.x) / wide, this.whole));
    const ends = [drag.x, at.x].map((x) => Math.round(this.find(panel, x, layout.work).at)).sort((a, b) => a - b);
    if (ends[1] > ends[0]) this.select({ range: { from: ends[0], to: ends[1] } });
    return undefined;
  }

  up(panel, event) {
    const { over } = panel;
    const at = this.point(panel, event);
    const drag = this.drag;
    const known = this.pointers.delete(event.pointerId);
    if (over.hasPointerCapture(event.pointerId)) over.releasePointerCapture(event.pointerId);
    if (event.type === "pointercancel") this.held = null;
    if (!known || !drag || event.type === "pointercancel") return;
    if (this.held) this.change(this.held.change);
    else if (!drag.moved && drag.does !== "map") this.click(panel, at);
    if (!this.pointers.size) this.drag = null;
  }

  click(panel, { x, y }) {
    const found = this.find(panel, x, y);
    if (found.row >= 0) this.selectRow(found.row, false);
    else if (found.hole) this.select({ hole: found.hole });
    else if (found.part !== "names") this.select({});
  }

  /** Return the device whose capacity can be dragged here, or -1. */
  store({ model, layout, painter }, x, y) {
    return model.stages && layout.memoryHeight ? capacityAt(model, layout, painter.memoryPlaces(this.memoryTo), x, y) : -1;
  }

  /** Return what a drag of a run would do here. Empty if changes by hand are off. */
  grip({ model, layout }, row, x) {
    if (model.changing) return "place";
    return model.stages || model.moves ? gripAt(model, layout, this.view, row, x) : "";
  }

  /** Update the dragged object at this point: its new position, and whether it is allowed. */
  hold({ model, layout, root, over, painter }, { x, y }, alone) {
    const { does } = this.drag;
    const lane = Math.max(0, Math.min(model.lanes.length - 1, Math.floor((y - layout.work) / layout.laneHeight)));
    if (does === "capacity") this.held = holdCapacity(model, painter.memoryPlaces(this.memoryTo), this.drag, y);
    else this.held = model.changing
      ? holdRun(model, layout, this.view, { ...this.drag, alone }, x, lane)
      : holdOf(model, layout, this.view, { ...this.drag, alone }, x, lane);
    const { tip, held } = this;
    this.drag.places = held.places; // they do not change during a drag
    const outside = x < 0 || y < 0 || x > layout.width || y > layout.height;
    if (outside) Object.assign(held, { change: null, says: "release here to change nothing" });
    root.appendChild(tip);
    tip.textContent = held.says;
    tip.classList.toggle("refused", Boolean(held.refused || held.warns));
    this.tipAt(layout, over, x, y);
    over.style.cursor = held.refused ? "not-allowed" : does === "capacity" ? "ns-resize" : held.lasts ? "ew-resize" : "grabbing";
    this.overSoon();
  }

  /** Ask the server for a change. The dragged object stays drawn until the answer arrives. */
  change(change) {
    this.tip.hidden = true;
    this.tip.classList.remove("refused");
    if (!change) this.held = null;
    else {
      this.held ??= { blocks: "block" in change ? [change.block] : [], refused: "", from: -1, to: -1, ghosts: [], run: this.looked.row >= 0 && this.model.changing ? nameOfRun(this.model, this.looked.row) : undefined };
      this.send("edit", { of: this.model.digest, ...change });
      this.rest(); // send a pending report first, because it would run the page during this change
    }
    this.overSoon();
  }

  /** Ask the server to pin these runs, or to unpin them if all are pinned. */
  pin(rows) {
    if (rows.length && rows[0] >= 0) this.change({ does: "pin", runs: rows.map((row) => nameOfRun(this.model, row)) });
  }

  allBefore() {
    const { start, count } = this.model;
    const rows = [];
    for (let row = 0; row < count && start[row] < start[this.looked.row]; row++) rows.push(row);
    return rows;
  }

  /** Change the selected block by an arrow key: move it to the device above or below, or change its duration by one unit. */
  nudge(arrow, swaps) {
    const { model, looked } = this;
    const block = model.block[looked.row];
    const { devices, duration } = model.blocks[block];
    const by = { arrowup: -1, arrowdown: 1, arrowleft: -1, arrowright: 1 }[arrow];
    if (model.changing) {
      if (arrow === "arrowup" || arrow === "arrowdown") return undefined;
      if (swaps) return this.swap(by);
      const [, micro_batch] = nameOfRun(model, looked.row);
      const unit = model.timeUnit in { step: 1, slot: 1 } ? 1 : Math.max(1, Math.round(duration / 10));
      const start = Math.max(0, model.start[looked.row] + by * unit);
      this.held = { blocks: [], run: [block, micro_batch], refused: "", ghosts: [] };
      return this.change({ does: "place", block, micro_batch, start, alone: true });
    }
    if (model.moves && !model.moves.of[block]) return undefined;
    if (arrow === "arrowleft" || arrow === "arrowright") {
      if (model.moves) return undefined;
      const step = Math.max(1, 10 ** Math.floor(Math.log10(duration) - 1));
      return this.change({ does: "stretch", block, duration: Math.max(1, duration + by * step) });
    }
    const [source, target] = [devices[0], devices[0] + by];
    if (target < 0 || target >= model.devices.length) return undefined;
    const refused = whyNot(model, block, source, target, false);
    if (model.moves) this.judge(refused, refused);
    else this.complaint.textContent = refused;
    return refused ? undefined : this.change({ does: "move", block, source, target, alone: false });
  }

  /** Swap the selected run with the previous or next one on its device. */
  swap(by) {
    const { model, looked } = this;
    const lane = model.lanes[model.on[model.which[looked.row]][0]];
    const other = lane.rows[upTo(lane.start, model.start[looked.row]) - 1 + by] ?? -1;
    if (other < 0) return undefined;
    const refused = comesFirst(model, looked.row, other);
    if (!refused) return this.change(swapOf(model, looked.row, other, false));
    return this.judge(refused, true);
  }

  toMap({ layout }, x) {
    const span = this.view.to - this.view.from;
    const at = momentAt(layout, { from: 0, to: this.whole }, x);
    this.see({ from: at - span / 2, to: at + span / 2 });
  }

  key(event) {
    for (const { over } of this.panels) over.classList.remove("by-pointer");
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "f") {
      event.preventDefault();
      return this.finder.focus();
    }
    if (event.altKey && (this.model.stages || this.model.moves || this.model.changing) && this.looked.row >= 0 && event.key.startsWith("Arrow")) {
      event.preventDefault();
      return this.nudge(event.key.toLowerCase(), event.shiftKey);
    }
    if (event.key === "Escape" && this.held) {
      this.drag = null;
      return this.change(null);
    }
    if (event.ctrlKey || event.metaKey || event.altKey || ["SELECT", "INPUT"].includes(event.target.tagName)) return;
    const middle = () => this.looked.moment ?? (this.looked.row >= 0 && this.inView(this.looked.row) ? this.model.start[this.looked.row] : (this.view.from + this.view.to) / 2);
    const { whole } = this;
    const does = {
      w: () => this.see(zoomed(this.view, middle(), 0.8, whole)), s: () => this.see(zoomed(this.view, middle(), 1.25, whole)),
      a: () => this.see(panned(this.view, -0.15, whole)), d: () => this.see(panned(this.view, 0.15, whole)),
      f: () => this.fit(), 0: () => this.see({ from: 0, to: whole }), m: () => this.mark(),
      p: this.model.changing ? () => this.pin([this.looked.row]) : undefined,
      " ": event.target.tagName === "BUTTON" || this.model.changing ? undefined : () => this.play(),
      ",": this.model.changing ? undefined : () => this.step(-1), ".": this.model.changing ? undefined : () => this.step(1),
      "[": () => this.walk("needs"), "]": () => this.walk("feeds"), "?": () => this.help(),
      escape: () => (!this.keys.hidden ? this.help() : this.playing ? this.stop() : this.select({})),
      arrowleft: () => (this.playing ? this.step(-1) : this.move(-1, 0)), arrowright: () => (this.playing ? this.step(1) : this.move(1, 0)), arrowup: () => this.move(0, -1), arrowdown: () => this.move(0, 1),
    }[event.key.toLowerCase()];
    if (!does) return;
    event.preventDefault();
    event.stopPropagation(); // the page has other keys
    does();
  }

  inView(row) {
    return this.model.start[row] >= this.view.from && this.model.start[row] <= this.view.to;
  }
}

// -------------------------------------------------------------------- helpers

function put(parent, tag, name, text = "") {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.textContent = text;
  parent.appendChild(made);
  return made;
}

function button(parent, text, about, does) {
  const made = put(parent, "button", "", text);
  made.type = "button";
  made.title = about;
  made.addEventListener("click", does);
  return made;
}

function select(parent, name, options, does) {
  const label = put(parent, "label", "", `${name} `);
  const made = put(label, "select", "");
  for (const [value, text] of Object.entries(options)) put(made, "option", "", text).value = value;
  made.addEventListener("change", () => does(made.value));
  return made;
}

function title(card, name, beside) {
  const line = put(card, "h3", "");
  const text = put(line, "span", "name", name);
  text.dir = "auto";
  text.title = name;
  put(line, "span", "soft", beside);
}

function fact(facts, name, text, beside = "") {
  const pair = put(facts, "div", "");
  put(pair, "dt", "", name);
  const place = put(pair, "dd", "", text);
  if (beside) put(place, "span", "soft", ` ${beside}`);
  return place;
}

function listed(names, most = LISTED) {
  const rest = names.length > most ? ` and ${names.length - most} more` : "";
  return names.slice(0, most).map((name) => isolated(name, 40)).join(", ") + rest;
}

function shortName(name) {
  const letters = Array.from(name);
  return letters.length > 28 ? `${letters.slice(0, 27).join("")}…` : name;
}

/** Whether the page runs or is about to: a report would interrupt what somebody has just pressed, and Streamlit then
 * forgets the press.  Without a connection the page would never hear that a run has ended. */
function pageRuns() {
  const { testScriptState, testConnectionState } = /** @type {HTMLElement} */ (document.querySelector("[data-testid=stApp]"))?.dataset ?? {};
  return performance.now() - pressedAt < PRESS_MS || (testConnectionState === "CONNECTED" && testScriptState !== "notRunning");
}

/** Writes the address without a step in the browser's history; the server then finds it as it wants it. */
function intoAddress(reported) {
  const query = new URLSearchParams(location.search);
  for (const key of ["time", "at", "on", "colour", "lanes", "marks"]) {
    query.delete(key);
    if (reported[key]) query.append(key, reported[key]); // at the end, in the order in which the server writes them
  }
  const text = query.toString();
  try {
    history.replaceState(history.state, "", location.pathname + (text ? `?${text}` : ""));
  } catch {
    // A page inside another one may not have an address of its own; the server hears of it all the same.
  }
}

/** A colour of CSS as "#rrggbb". */
function hex(colour, otherwise) {
  if (/^#[0-9a-f]{6}$/i.test(colour)) return colour;
  const short = /^#([0-9a-f])([0-9a-f])([0-9a-f])$/i.exec(colour);
  if (short) return `#${short[1]}${short[1]}${short[2]}${short[2]}${short[3]}${short[3]}`;
  const parts = /^rgba?\((\d+)[, ]+(\d+)[, ]+(\d+)/.exec(colour);
  return parts ? `#${parts.slice(1, 4).map((each) => Number(each).toString(16).padStart(2, "0")).join("")}` : otherwise;
}

/** A share of the second colour in the first. */
function mixed(one, other, share) {
  const parts = [1, 3, 5].map((at) => [parseInt(one.slice(at, at + 2), 16), parseInt(other.slice(at, at + 2), 16)]);
  return `#${parts.map(([a, b]) => Math.round(a + (b - a) * share).toString(16).padStart(2, "0")).join("")}`;
}

/** Has the browser save what is at an address. */
function handOut(href, download) {
  Object.assign(document.createElement("a"), { href, download }).click();
}
