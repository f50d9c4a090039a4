// Draws a model: blocks if they have room, otherwise shares of pixel columns, and memory lanes below.

import { below, memoryOf, mostHeld, neighbours, peakOf, spansOfRun, upTo } from "./data.mjs";
import { memoryScale, pixelOf, showTime, ticksOf } from "./scale.mjs";

/** Least width in pixels of a block that is drawn separately. Smaller blocks share columns. */
export const DRAWN_ALONE = 3;
const LABELLED = 11;
const PATTERNED = 7;
const SHADES = [0, 0.22, 0.11, 0.33]; // shares of white or black for micro-batches 0 to 3, which repeat
/** Opacity of a kind's pattern, by the colour of the text above it. */
export const CUES = { "#ffffff": 0.25, "#000000": 0.1 };
const MAX_LETTERS = 60;

/** Return "#rrggbb" as three numbers. */
export function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

/** Return black or white, whichever has the higher contrast [WCAG 2.2, 1.4.3]. */
export function inkOn(rgb) {
  const [r, g, b] = rgb.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#ffffff" : "#000000";
}

/** Return the colours of runs: run (b, m) has the colour `base[b] + m % turn`. */
export function coloursOf(model, mode) {
  const kinds = model.blocks.map((each) => each.kind);
  const slots = model.slots.map(channels);
  if (mode === "micro-batch") return paletteOf(kinds.map(() => 0), slots.length, slots);
  if (mode === "block" || mode === "chunk") {
    const names = [...new Set(model.blocks.map((each) => each.label ?? each.name))];
    const group = (each) => (mode === "chunk" ? each.chunk : names.indexOf(each.label ?? each.name));
    const base = model.blocks.map((each) => (group(each) % slots.length) * 2);
    return paletteOf(base, 2, slots.flatMap((rgb) => [rgb, shaded(rgb, SHADES[1])]));
  }
  const palette = model.kinds.flatMap(([, colour]) => SHADES.map((share) => shaded(channels(colour), share)));
  return paletteOf(kinds.map((kind) => kind * SHADES.length), SHADES.length, palette);
}

function paletteOf(base, turn, palette) {
  return {
    base: Int32Array.from(base), turn, rgb: Float32Array.from(palette.flat()),
    css: palette.map(([r, g, b]) => `rgb(${r}, ${g}, ${b})`), ink: palette.map(inkOn),
  };
}

/** Return a shade towards black or white, so that the best text colour stays the same. */
function shaded(rgb, share) {
  const towards = inkOn(rgb) === "#ffffff" ? 0 : 255;
  return rgb.map((value) => Math.round(value + (towards - value) * share));
}

/**
 * Visit the runs of a lane in the view. `alone(row, left, right)` gets those with room, in pixels of the `width`.
 * Others are added to `sums`, four numbers per pixel: red, green and blue times share, and the busy share.
 */
export function splitByRoom(model, lane, view, width, colours, sums, alone, least = DRAWN_ALONE) {
  const perTick = width / (view.to - view.from);
  const { base, turn, rgb } = colours;
  const { start, end, rows } = lane;
  let first = upTo(start, view.from);
  if (first > 0 && end[first - 1] > view.from) first--;
  const last = below(start, view.to);
  for (let i = first; i < last; i++) {
    const left = (start[i] - view.from) * perTick;
    const right = (end[i] - view.from) * perTick;
    if (right - left >= least) {
      alone(rows[i], left, right);
      continue;
    }
    const row = rows[i];
    const colour = 3 * (base[model.block[row]] + (model.microBatch[row] % turn));
    const x0 = Math.max(0, left);
    const x1 = Math.min(width, right);
    for (let x = Math.floor(x0); x < x1; x++) {
      const share = Math.min(x1, x + 1) - Math.max(x0, x);
      const at = 4 * x;
      sums[at] += share * rgb[colour];
      sums[at + 1] += share * rgb[colour + 1];
      sums[at + 2] += share * rgb[colour + 2];
      sums[at + 3] += share;
    }
  }
}

/** Write sums as one row of pixels: mixed colours, fainter where the lane is idle. */
export function toPixels(sums, pixels, offset, width) {
  for (let x = 0; x < width; x++) {
    const share = sums[4 * x + 3];
    if (share === 0) continue;
    const at = offset + 4 * x;
    pixels[at] = sums[4 * x] / share;
    pixels[at + 1] = sums[4 * x + 1] / share;
    pixels[at + 2] = sums[4 * x + 2] / share;
    pixels[at + 3] = 255 * Math.min(1, share);
  }
}

/** Return `text` isolated from the writing direction of its neighbours, and cut to one line. */
export function isolated(text, most = MAX_LETTERS) {
  const letters = Array.from(text);
  return `\u2068${letters.length > most ? letters.slice(0, most - 1).join("") + "…" : text}\u2069`;
}

/** Draws a model, and caches what does not change between frames. */
export class Painter {
  /** `whole` is the length of the time axis in ticks, which is larger than the model's beside a longer schedule. */
  constructor(canvas, model, whole) {
    this.canvas = canvas;
    this.model = model;
    this.whole = Math.max(1, whole);
    this.context = canvas.getContext("2d");
    this.widths = new Map();
    this.patterns = new Map();
    this.setColours("kind");
  }

  setColours(mode) {
    this.colours = coloursOf(this.model, mode);
    this.map = null;
  }

  /** Set the size in CSS pixels, and the device pixels per CSS pixel. */
  resize(layout, ratio) {
    this.layout = layout;
    this.ratio = ratio;
    this.canvas.width = Math.round(layout.width * ratio);
    this.canvas.height = Math.round(layout.height * ratio);
    this.canvas.style.height = `${layout.height}px`;
    this.wide = Math.max(1, Math.round((layout.right - layout.left) * ratio));
    this.sums = new Float32Array(4 * this.wide);
    this.strip = document.createElement("canvas");
    this.strip.width = this.wide;
    this.strip.height = this.model.lanes.length;
    this.map = null;
  }

  /** Draw everything except hover and selection. */
  paint(view, theme, memoryTo) {
    const { context: c, layout, model } = this;
    this.theme = theme;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.clearRect(0, 0, layout.width, layout.height);
    c.textBaseline = "middle";
    if (layout.mapped) this.paintMap(view);
    this.paintAxis(view);
    this.paintNames(memoryTo === "held");
    this.paintGround(view);
    this.paintWork(view);
    if (layout.memoryHeight) this.paintMemory(view, memoryTo);
    this.paintSteady(view);
    if (model.makespan < this.whole) this.paintEnd(view);
    if (model.bound) this.paintBound(view);
  }

  font(pixels, weight = 400) {
    return `${weight} ${pixels}px ${this.theme.font}`;
  }

  paintMap(view) {
    const { context: c, layout, theme } = this;
    const whole = { from: 0, to: this.whole };
    const { left, right, map, mapHeight } = layout;
    this.map ??= this.stripOf(whole, document.createElement("canvas"), Infinity);
    c.fillStyle = theme.ground;
    c.fillRect(left, map, right - left, mapHeight);
    c.imageSmoothingEnabled = true;
    c.drawImage(this.map, left, map, right - left, mapHeight);
    c.imageSmoothingEnabled = false;
    const x0 = pixelOf(layout, whole, view.from);
    const x1 = pixelOf(layout, whole, view.to);
    c.fillStyle = theme.veil;
    c.fillRect(left, map, x0 - left, mapHeight);
    c.fillRect(x1, map, right - x1, mapHeight);
    c.strokeStyle = theme.accent;
    c.lineWidth = 1.5;
    c.strokeRect(x0 + 0.5, map + 0.5, Math.max(2, x1 - x0 - 1), mapHeight - 1);
    c.fillStyle = theme.soft;
    c.font = this.font(11);
    c.textAlign = "left";
    c.fillText("all", 2, map + mapHeight / 2);
  }

  paintAxis(view) {
    const { context: c, layout, theme, model } = this;
    const { ticks, unit } = ticksOf(view, layout.right - layout.left, model.timeUnit, layout.width < 500 ? 64 : 90);
    const y = layout.work - 10;
    c.font = this.font(11);
    c.fillStyle = theme.soft;
    c.textAlign = "left";
    c.fillText(unit, 2, y);
    c.textAlign = "center";
    c.strokeStyle = theme.grid;
    c.lineWidth = 1;
    c.beginPath();
    for (const { at, label } of ticks) {
      const x = Math.round(pixelOf(layout, view, at)) + 0.5;
      c.moveTo(x, layout.work - 3);
      c.lineTo(x, layout.workEnd);
      c.moveTo(x, layout.memory);
      c.lineTo(x, layout.memoryEnd);
      const half = c.measureText(label).width / 2;
      c.fillText(label, Math.min(Math.max(x, layout.left + half), layout.right + 8 - half), y);
    }
    c.stroke();
  }

  /** Draw the names of the devices, cut to their width. If lanes are thin, only every n-th is drawn. */
  paintNames(held) {
    const { context: c, layout, theme, model } = this;
    c.textAlign = "left";
    const work = [layout.work, layout.laneHeight, model.lanes];
    for (const [top, height, lanes] of [work, [layout.memory, layout.memoryHeight, model.devices]]) {
      if (!height) return;
      const every = Math.ceil(12 / height);
      c.font = this.font(Math.max(9, Math.min(12.5, height - 2)));
      for (let d = 0; d < lanes.length; d += every) {
        const y = top + (d + 0.5) * height;
        let room = layout.gutter - 10;
        c.fillStyle = theme.text;
        if (top === layout.memory && every === 1 && layout.gutter >= 90) {
          const peak = this.peaks(held)[d];
          c.textAlign = "right";
          c.fillStyle = peak.over ? theme.limit : theme.soft;
          c.fillText(peak.text, layout.gutter - 8, y);
          room -= c.measureText(peak.text).width + 6;
          c.textAlign = "left";
          c.fillStyle = theme.text;
        }
        c.fillText(this.cut(lanes[d].name, room, c), 2, y);
      }
    }
    c.font = this.font(11);
    c.fillStyle = theme.soft;
    this.peaks(held);
    const limited = model.devices.some((device) => device.capacity !== null);
    const what = layout.width < 420 ? "memory" : held ? "memory without static, peak" : `memory, peak${limited ? " of capacity" : ""}`;
    const title = `${what} (${this.scale.unit})`;
    c.fillText(title, 2, layout.memory - 11);
  }

  /** Return each device's peak and capacity in one unit, or the peak of the memory of micro-batches. */
  peaks(held) {
    if (this.shownPeaks?.held === held) return this.shownPeaks.texts;
    const { model } = this;
    const peaks = model.stores.map((lane) => peakOf(model, lane) - (held ? model.devices[lane.device].static : 0));
    const largest = Math.max(1, ...peaks, ...(held ? [] : model.devices.map((device) => device.capacity ?? 0)));
    this.scale = memoryScale(largest, model.memoryUnit);
    const texts = model.devices.map((device, d) => {
      const bare = held || device.capacity === null;
      const text = this.scale.tell(peaks[d]) + (bare ? "" : `/${this.scale.tell(device.capacity)}`);
      return { text, over: device.capacity !== null && peakOf(model, model.stores[d]) > device.capacity };
    });
    this.shownPeaks = { held, texts };
    return texts;
  }

  /** Return a name shortened to a width in pixels, with "…". */
  cut(name, room, c) {
    const key = `${c.font}|${Math.round(room)}|${name}`;
    let found = this.widths.get(key);
    if (found === undefined) {
      const letters = Array.from(name.slice(0, 4 * MAX_LETTERS));
      let length = Math.min(letters.length, MAX_LETTERS);
      const text = () => letters.slice(0, length).join("") + (length < letters.length ? "…" : "");
      while (length > 0 && c.measureText(text()).width > room) length--;
      found = length > 0 ? isolated(text()) : "";
      if (this.widths.size > 5000) this.widths.clear();
      this.widths.set(key, found);
    }
    return found;
  }

  /** Return the longest form of a block's name that fits: "F layer6–11", "F l6–11", "l6–11", "F". */
  named(name, room, c) {
    if (!/\d|^\p{L} /u.test(name)) return this.cut(name, room, c);
    const initials = name.replace(/(\p{L})\p{L}+/gu, "$1");
    const shorter = [initials, initials.replace(/^\p{L} /u, ""), /^\p{L}(?= )/u.exec(name)?.[0] ?? name];
    return this.cut([name, ...shorter].find((each) => this.widthOf(c, each) <= room) ?? shorter[2], room, c);
  }

  /** Draw a faint background for each lane, hatched in warmup and cooldown. */
  paintGround(view) {
    const { context: c, layout, theme, model } = this;
    const pad = layout.laneHeight > 8 ? 2 : 0;
    c.fillStyle = theme.lane;
    for (let d = 0; d < model.lanes.length; d++) {
      c.fillRect(layout.left, layout.work + d * layout.laneHeight + pad, layout.right - layout.left, layout.laneHeight - 2 * pad);
    }
    if (!model.steady || layout.laneHeight < 6) return;
    c.fillStyle = this.pattern("hatch", theme.hatch);
    model.steady.windows.forEach(([opens, closes], d) => {
      for (const [from, to] of [[0, opens], [closes, model.makespan]]) {
        const x0 = Math.max(layout.left, pixelOf(layout, view, from));
        const x1 = Math.min(layout.right, pixelOf(layout, view, to));
        if (x1 > x0) c.fillRect(x0, layout.work + d * layout.laneHeight + pad, x1 - x0, layout.laneHeight - 2 * pad);
      }
    });
  }

  /**
   * Draw each lane as one row of pixels from the runs that have no room to be drawn separately.
   * @param {(lane: number, row: number, left: number, right: number) => void} alone called for the other runs
   */
  stripOf(view, strip, least, alone = () => {}) {
    const { model, sums, wide } = this;
    strip.width = wide;
    strip.height = model.lanes.length;
    const context = strip.getContext("2d");
    const image = context.createImageData(wide, strip.height);
    model.lanes.forEach((lane, d) => {
      sums.fill(0);
      splitByRoom(model, lane, view, wide, this.colours, sums, (row, l, r) => alone(d, row, l, r), least * this.ratio);
      toPixels(sums, image.data, 4 * wide * d, wide);
    });
    context.putImageData(image, 0, 0);
    return strip;
  }

  paintWork(view) {
    const { context: c, layout, model } = this;
    const bars = [];
    this.stripOf(view, this.strip, DRAWN_ALONE, (d, row, l, r) => bars.push(d, row, l, r));
    const pad = layout.laneHeight > 8 ? 2 : layout.laneHeight > 3 ? 1 : 0;
    c.imageSmoothingEnabled = false;
    for (let d = 0; d < model.lanes.length; d++) {
      const y = layout.work + d * layout.laneHeight + pad;
      c.drawImage(this.strip, 0, d, this.wide, 1, layout.left, y, layout.right - layout.left, layout.laneHeight - 2 * pad);
    }
    this.within(c, layout.work, layout.workEnd);
    for (let i = 0; i < bars.length; i += 4) {
      const span = this.spanAt(bars[i + 1], bars[i]);
      if (span) this.bar(c, bars[i + 1], span, layout.left + bars[i + 2] / this.ratio, layout.left + bars[i + 3] / this.ratio);
    }
    c.restore();
  }

  /** Return the group of neighbouring lanes of a run that begins with this lane. Undefined if another lane draws it. */
  spanAt(row, lane) {
    return spansOfRun(this.model, row).find(([first]) => first === lane);
  }

  /** Draw one block on some lanes between two pixels. */
  bar(c, row, [first, last], left, right) {
    const { layout, model, colours } = this;
    const block = model.block[row];
    const colour = colours.base[block] + (model.microBatch[row] % colours.turn);
    const pad = layout.laneHeight > 8 ? 2 : layout.laneHeight > 3 ? 1 : 0;
    const y = layout.work + first * layout.laneHeight + pad;
    const height = (last - first + 1) * layout.laneHeight - 2 * pad;
    const width = Math.max(0.5, right - left - (right - left > 5 ? 1 : 0.5));
    c.fillStyle = colours.css[colour];
    c.fillRect(left, y, width, height);
    if (width >= PATTERNED && height >= PATTERNED) this.overlay(c, model.blocks[block].kind, colours.ink[colour], left, y, width, height);
    if (width >= LABELLED && height >= 10) this.label(c, row, colours.ink[colour], left, y, width, height);
  }

  /** Draw the pattern of a kind, visible in greyscale: stripes for backward, dots for weight gradients, lines for others. */
  overlay(c, kind, ink, left, y, width, height) {
    const name = ["", "stripes", "dots", "lines"][kind];
    if (!name) return;
    c.fillStyle = this.pattern(name, `rgba(0, 0, 0, ${CUES[ink]})`);
    c.fillRect(left, y, width, height);
  }

  pattern(name, colour) {
    const key = name + colour + this.ratio;
    if (this.patterns.has(key)) return this.patterns.get(key);
    const size = 8;
    const tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const c = tile.getContext("2d");
    c.strokeStyle = c.fillStyle = colour;
    c.lineWidth = name === "hatch" ? 1 : 1.6;
    c.beginPath();
    if (name === "dots") [[2, 2], [6, 6]].forEach(([x, y]) => c.rect(x - 0.8, y - 0.8, 1.8, 1.8));
    else if (name === "lines") c.rect(0, 3, size, 1.4);
    else for (const by of [-size, 0, size]) { c.moveTo(by - 1, size + 1); c.lineTo(by + size + 1, -1); }
    if (name === "dots" || name === "lines") c.fill();
    else c.stroke();
    const made = Object.assign(c.createPattern(tile, "repeat"), { tile });
    this.patterns.set(key, made);
    return made;
  }

  /** Draw the label: block and micro-batch if both fit, or the micro-batch. With one micro-batch, only the name. */
  label(c, row, ink, left, y, width, height) {
    const { layout, model } = this;
    const from = Math.max(left, layout.left);
    const room = Math.min(left + width, layout.right) - from - 4;
    if (room < 6) return;
    const size = Math.max(9, Math.min(12.5, height * 0.5, 8 + room / 8));
    c.font = this.font(Math.round(2 * size) / 2, 500);
    if (model.microBatches === 1 || model.blocks[model.block[row]].alone) {
      c.fillStyle = ink;
      c.textAlign = "center";
      const { name, short } = model.blocks[model.block[row]];
      c.fillText(this.named(short ?? name, room, c), from + 2 + room / 2, y + height / 2 + 0.5);
      return;
    }
    const number = String(model.microBatch[row]);
    const wide = this.widthOf(c, number);
    if (wide > room) return;
    c.fillStyle = ink;
    c.textAlign = "center";
    const rest = room - wide - this.widthOf(c, " · ");
    const name = rest >= 14 ? this.named(model.blocks[model.block[row]].name, rest, c) : "";
    c.fillText(name.length > 2 ? `${name} · ${number}` : number, from + 2 + room / 2, y + height / 2 + 0.5);
  }

  widthOf(c, text) {
    const key = `${c.font}|${text}`;
    let found = this.widths.get(key);
    if (found === undefined) {
      found = c.measureText(text).width;
      if (this.widths.size > 5000) this.widths.clear();
      this.widths.set(key, found);
    }
    return found;
  }

  /** Draw the names of the phases above the lanes, and lines where the repeating part begins and ends. */
  paintSteady(view) {
    const { context: c, layout, theme, model } = this;
    if (!model.steady) return;
    const { opens, closes, title } = model.steady;
    c.textAlign = "center";
    c.font = this.font(11);
    for (const [name, from, to] of [["warmup", 0, opens], [title, opens, closes], ["cooldown", closes, model.makespan]]) {
      const x0 = Math.max(layout.left, pixelOf(layout, view, from));
      const x1 = Math.min(layout.right, pixelOf(layout, view, to));
      c.fillStyle = theme.soft;
      const shown = [name, name.split(",")[0]].find((each) => this.widthOf(c, each) + 8 <= x1 - x0);
      if (shown) c.fillText(shown, (x0 + x1) / 2, layout.axis + 8);
    }
    c.strokeStyle = theme.soft;
    c.setLineDash([2, 3]);
    c.lineWidth = 1;
    c.beginPath();
    for (const tick of [opens, closes]) {
      const x = Math.round(pixelOf(layout, view, tick)) + 0.5;
      if (x <= layout.left || x >= layout.right) continue;
      c.moveTo(x, layout.axis + 2);
      c.lineTo(x, layout.workEnd);
    }
    c.stroke();
    c.setLineDash([]);
  }

  /** Draw a line at the end of this schedule if a longer one is beside it. */
  paintEnd(view) {
    const { context: c, layout, theme, model } = this;
    const x = Math.round(pixelOf(layout, view, model.makespan));
    if (x < layout.left || x > layout.right) return;
    c.fillStyle = theme.soft;
    c.fillRect(x, layout.work - 3, 2, layout.memoryEnd - layout.work + 3);
  }

  /** Draw the proved lower bound of a placement, if it is known. */
  paintBound(view) {
    const { context: c, layout, theme, model } = this;
    const x = Math.round(pixelOf(layout, view, model.bound)) - 0.5;
    if (x < layout.left || x > layout.right) return;
    c.strokeStyle = theme.text;
    c.lineWidth = 1.5;
    c.setLineDash([5, 3]);
    c.beginPath();
    c.moveTo(x, layout.work - 3);
    c.lineTo(x, layout.workEnd);
    c.stroke();
    c.setLineDash([]);
    c.fillStyle = theme.soft;
    c.font = this.font(11);
    c.textAlign = x > layout.right - 60 ? "right" : "center";
    c.fillText("bound", x, layout.axis + 8);
  }

  /** Return the scale of the memory lanes: the amount that fills a lane, its height, and the position of an amount. */
  memoryPlaces(memoryTo) {
    const { layout, model } = this;
    const held = memoryTo === "held";
    const floor = (d) => (held ? model.devices[d].static : 0);
    const most = Math.max(1, ...model.stores.map((lane, d) => peakOf(model, lane) - floor(d)));
    const limits = held ? [] : model.devices.map((device) => device.capacity ?? 0);
    const top = Math.max(most, ...limits);
    const high = layout.memoryHeight - (layout.memoryHeight > 8 ? 4 : 0);
    const base = (d) => layout.memory + (d + 1) * layout.memoryHeight - (layout.memoryHeight > 8 ? 2 : 0);
    return { top, high, base, floor, y: (d, level) => base(d) - (high * (level - floor(d))) / top };
  }

  /** Draw the memory of each lane on one scale: static memory grey, the rest blue, above the capacity red. */
  paintMemory(view, memoryTo) {
    const { context: c, layout, theme, model } = this;
    const { memoryColours: colour } = model;
    const { top, high, base: baseOf, floor, y: levelAt } = this.memoryPlaces(memoryTo);
    const held = memoryTo === "held";
    const columns = Math.max(1, Math.round((layout.right - layout.left) / (layout.memoryHeight < 16 ? 3 : 1)));
    model.stores.forEach((lane, d) => {
      const device = model.devices[d];
      const base = baseOf(d);
      const y = (level) => levelAt(d, level);
      c.fillStyle = theme.lane;
      c.fillRect(layout.left, base - high, layout.right - layout.left, high);
      if (!held && device.static > 0) {
        c.fillStyle = colour.static;
        c.globalAlpha = 0.5;
        c.fillRect(layout.left, y(device.static), layout.right - layout.left, base - y(device.static));
      }
      const steps = this.stepsOf(lane, view, columns);
      const limit = device.capacity ?? Infinity;
      const over = peakOf(model, lane) > limit;
      this.area(c, steps, y(device.static), (level) => y(Math.min(level, limit)), colour.held, 0.6);
      if (over) this.area(c, steps, y(limit), (level) => y(Math.max(level, limit)), colour.limit, 0.85);
      if (device.capacity !== null && device.capacity - floor(d) <= top) {
        c.strokeStyle = colour.limit;
        c.globalAlpha = layout.memoryHeight > 16 ? 0.9 : 0.45; // many lines would dominate the picture
        c.lineWidth = 1;
        c.beginPath();
        const at = Math.round(y(device.capacity)) + 0.5;
        c.moveTo(layout.left, at);
        c.lineTo(layout.right, at);
        c.stroke();
        c.globalAlpha = 1;
      }
    });
  }

  /** Return [left, level, left, level, …] of a lane: every step, or the maximum of each column. */
  stepsOf(lane, view, columns) {
    const { model, layout } = this;
    const { times, levels } = memoryOf(model, lane);
    const first = Math.max(0, upTo(times, view.from) - 1);
    const last = below(times, view.to);
    const steps = [];
    if (last - first <= columns) {
      for (let i = first; i < last; i++) steps.push(Math.max(layout.left, pixelOf(layout, view, times[i])), levels[i]);
      return steps;
    }
    const span = (view.to - view.from) / columns;
    const wide = (layout.right - layout.left) / columns;
    for (let i = 0; i < columns; i++) {
      steps.push(layout.left + i * wide, mostHeld(model, lane, view.from + i * span, view.from + (i + 1) * span));
    }
    return steps;
  }

  area(c, steps, base, y, colour, alpha) {
    c.beginPath();
    c.moveTo(steps[0], base);
    for (let i = 0; i < steps.length; i += 2) {
      const at = y(steps[i + 1]);
      c.lineTo(steps[i], at);
      c.lineTo(i + 2 < steps.length ? steps[i + 2] : this.layout.right, at);
    }
    c.lineTo(this.layout.right, base);
    c.closePath();
    c.fillStyle = colour;
    c.globalAlpha = alpha;
    c.fill();
    c.globalAlpha = 1;
  }

  /** Draw hover, selection, its path and its arrows on the upper canvas. */
  paintOver(c, view, looked, marks) {
    const { layout, theme, model } = this;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.clearRect(0, 0, layout.width, layout.height);
    this.within(c, layout.axis, layout.memoryEnd);
    const x = (tick) => pixelOf(layout, view, tick);
    if (marks.length || looked.range) {
      c.fillStyle = theme.ground; // the lengths cover the names of the phases
      c.fillRect(layout.left, layout.axis, layout.right - layout.left, 17);
    }
    for (const mark of marks) this.band(c, x(mark.from), x(mark.to), theme.mark, showTime(mark.to - mark.from, model.timeUnit));
    if (looked.row >= 0) this.path(c, view, looked);
    if (looked.hole) {
      const y = layout.work + looked.hole.lane * layout.laneHeight;
      this.frame(c, x(looked.hole.from), y + 1.5, x(looked.hole.to), y + layout.laneHeight - 1.5, theme.accent, [4, 3]);
    }
    if (looked.range) {
      c.fillStyle = theme.veil;
      const [x0, x1] = [x(looked.range.from), x(looked.range.to)];
      for (const [top, bottom] of this.parts()) {
        c.fillRect(layout.left, top, x0 - layout.left, bottom - top);
        c.fillRect(x1, top, layout.right - x1, bottom - top);
      }
      this.band(c, x0, x1, theme.accent, showTime(looked.range.to - looked.range.from, model.timeUnit));
    }
    if (looked.moment !== null) {
      c.strokeStyle = theme.soft;
      c.lineWidth = 1;
      c.beginPath();
      const at = Math.round(x(looked.moment)) + 0.5;
      c.moveTo(at, layout.work);
      c.lineTo(at, layout.memoryEnd);
      c.stroke();
    }
    if (looked.hover >= 0 && looked.hover !== looked.row) this.outline(c, view, looked.hover, theme.text, 1.5);
    c.restore();
  }

  /** Draw everything after a time pale, and frames around the runs at that time. */
  playing(c, view, moment, rows) {
    const { layout, theme } = this;
    this.within(c, layout.axis, layout.memoryEnd);
    const at = Math.max(layout.left, pixelOf(layout, view, moment));
    c.fillStyle = theme.veil;
    for (const [top, bottom] of this.parts()) c.fillRect(at, top, layout.right - at, bottom - top);
    for (const row of rows) this.outline(c, view, row, theme.text, 2);
    c.fillStyle = theme.accent;
    c.fillRect(at - 1, layout.work, 2, layout.memoryEnd - layout.work);
    c.restore();
  }

  /** Mark runs that wait for each other in a circle. */
  circle(c, view, rows) {
    if (!rows.length) return;
    const { layout, theme } = this;
    this.within(c, layout.work, layout.workEnd);
    for (const row of rows) this.outline(c, view, row, theme.limit, 3);
    if (rows.length > 1) rows.forEach((row, i) => this.bow(c, view, row, rows[(i + 1) % rows.length], theme.limit));
    c.restore();
  }

  /** Draw a pin on each of these runs. */
  pins(c, view, rows) {
    if (!rows.length) return;
    const { layout, theme } = this;
    this.within(c, layout.work, layout.workEnd);
    for (const row of rows) {
      const { left, right, pieces } = this.boxOf(view, row);
      if (right < layout.left || left > layout.right || right - left < 4) continue;
      const [top] = pieces[0];
      c.fillStyle = theme.ground;
      c.strokeStyle = theme.text;
      c.lineWidth = 1.5;
      c.beginPath();
      c.arc(Math.min(left + 5, (left + right) / 2), top + 4.5, 2.8, 0, 7);
      c.fill();
      c.stroke();
    }
    c.restore();
  }

  /**
   * Draw the dragged runs at their new positions: `ghosts` has [run, end, first lane, last lane, start]. `places` has the
   * time ranges where the run can go while others stay, with or without memory for it. `line` is the height of a capacity.
   */
  hold(c, view, { ghosts, refused, places = [], line }) {
    const { layout, model, theme } = this;
    this.within(c, layout.work, layout.workEnd);
    for (const [from, to, lane, fits] of places) {
      c.fillStyle = fits ? theme.feeds : theme.limit;
      c.globalAlpha = fits ? 0.22 : 0.16;
      const [left, right] = [from, to].map((tick) => pixelOf(layout, view, tick));
      c.fillRect(left, layout.work + lane * layout.laneHeight + 1, Math.max(2, right - left), layout.laneHeight - 2);
    }
    for (const [row, end, span, start = model.start[row]] of ghosts) {
      const [left, right] = [start, end].map((tick) => pixelOf(layout, view, tick));
      c.globalAlpha = 0.75;
      if (!refused) this.bar(c, row, span, left, Math.max(right, left + 2.5));
      c.globalAlpha = 1;
      const top = layout.work + span[0] * layout.laneHeight + 1;
      this.frame(c, left, top, right, layout.work + (span[1] + 1) * layout.laneHeight - 1, refused ? theme.limit : theme.accent, [4, 3]);
    }
    c.restore();
    if (line === undefined) return;
    c.fillStyle = refused ? theme.limit : theme.accent;
    c.fillRect(layout.left, Math.round(line) - 1, layout.right - layout.left, 3);
  }

  /** Until `restore`, draw only between two heights and to the right of the devices' names. */
  within(c, top, bottom) {
    const { layout } = this;
    c.save();
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.beginPath();
    c.rect(layout.left, top, layout.right - layout.left, bottom - top);
    c.clip();
  }

  /** Return the areas that a selection shades: the work lanes and the memory lanes, without the title between. */
  parts() {
    return [[this.layout.axis, this.layout.workEnd], [this.layout.memory, this.layout.memoryEnd]];
  }

  /** Draw a time range with its length at the top. */
  band(c, x0, x1, colour, text) {
    const { layout } = this;
    c.fillStyle = colour;
    c.globalAlpha = 0.1;
    for (const [top, bottom] of this.parts()) c.fillRect(x0, top, x1 - x0, bottom - top);
    c.globalAlpha = 1;
    c.fillRect(x0, layout.axis, 1, layout.memoryEnd - layout.axis);
    c.fillRect(x1 - 1, layout.axis, 1, layout.memoryEnd - layout.axis);
    c.font = this.font(11, 600);
    const wide = c.measureText(text).width + 10;
    const middle = Math.min(Math.max((Math.max(x0, layout.left) + Math.min(x1, layout.right)) / 2, layout.left + wide / 2), layout.right - wide / 2);
    c.fillRect(middle - wide / 2, layout.axis, wide, 16);
    c.fillStyle = inkOn(channels(colour));
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText(text, middle, layout.axis + 8.5);
  }

  frame(c, x0, y0, x1, y1, colour, dash = []) {
    c.strokeStyle = colour;
    c.lineWidth = 2;
    c.setLineDash(dash);
    c.strokeRect(x0, y0, Math.max(2, x1 - x0), y1 - y0);
    c.setLineDash([]);
  }

  /** Return left and right of a run, and top and bottom of its pieces. */
  boxOf(view, row) {
    const { layout, model } = this;
    const pad = layout.laneHeight > 8 ? 2 : 0;
    const spans = spansOfRun(model, row);
    return {
      left: pixelOf(layout, view, model.start[row]), right: pixelOf(layout, view, model.end[row]),
      pieces: spans.map(([a, b]) => [layout.work + a * layout.laneHeight + pad, layout.work + (b + 1) * layout.laneHeight - pad]),
    };
  }

  outline(c, view, row, colour, wide) {
    const { left, right, pieces } = this.boxOf(view, row);
    c.strokeStyle = colour;
    c.lineWidth = wide;
    const around = wide / 2; // a frame around the block, so that a thin one is visible
    for (const [top, bottom] of pieces) {
      c.strokeRect(left - around, top - around, Math.max(1, right - left - 1) + wide, bottom - top + wide);
    }
  }

  /** Highlight the path of the micro-batch, and draw arrows to the runs that the run needs and that need it. */
  path(c, view, looked) {
    const { layout, model, theme } = this;
    c.fillStyle = theme.veil;
    c.fillRect(layout.left, layout.work, layout.right - layout.left, layout.workEnd - layout.work);
    c.textBaseline = "middle";
    for (const row of looked.path) {
      if (model.end[row] < view.from || model.start[row] > view.to) continue;
      const { left, right } = this.boxOf(view, row);
      for (const span of spansOfRun(model, row)) this.bar(c, row, span, left, Math.max(right, left + 2.5));
    }
    this.chain(c, view, looked.chain);
    this.outline(c, view, looked.row, theme.text, 2.5);
    for (const { row } of neighbours(model, looked.row, "needs")) this.arrow(c, view, row, looked.row, theme.needs);
    for (const { row } of neighbours(model, looked.row, "feeds")) this.arrow(c, view, looked.row, row, theme.feeds);
  }

  /** Highlight a chain of waiting runs, and join them by a line. */
  chain(c, view, rows) {
    const { layout, model, theme } = this;
    const seen = rows.filter((row) => model.end[row] >= view.from && model.start[row] <= view.to);
    for (const row of seen) {
      const { left, right } = this.boxOf(view, row);
      for (const span of spansOfRun(model, row)) this.bar(c, row, span, left, Math.max(right, left + 1));
    }
    c.strokeStyle = theme.mark;
    c.lineWidth = 2;
    c.beginPath();
    for (const row of seen) {
      const { left, right, pieces } = this.boxOf(view, row);
      const y = (pieces[0][0] + pieces[0][1]) / 2 + Math.min(6, layout.laneHeight / 4);
      c.lineTo(Math.min(right, layout.right), y);
      c.lineTo(Math.max(left, layout.left), y);
    }
    c.stroke();
  }

  /** Draw an arrow between two runs beside their names, so that arrows there and back form two sides of a circle. */
  bow(c, view, from, to, colour) {
    const middle = ({ left, right, pieces: [[top, bottom]] }) => [left + Math.min(24, (right - left) / 2), (top + bottom) / 2];
    const [[x0, y0], [x1, y1]] = [from, to].map((row) => middle(this.boxOf(view, row)));
    const far = Math.hypot(x1 - x0, y1 - y0) || 1;
    const out = Math.min(60, far) / far;
    const [x, y] = [(x0 + x1) / 2 + (y0 - y1) * out, (y0 + y1) / 2 + (x1 - x0) * out];
    const way = Math.atan2(y1 - y, x1 - x);
    const head = [2.7, -2.7].map((turn) => [x1 + 9 * Math.cos(way + turn), y1 + 9 * Math.sin(way + turn)]);
    for (const [ink, wide] of [[this.theme.ground, 5], [colour, 2.5]]) {
      c.strokeStyle = c.fillStyle = ink;
      c.lineWidth = wide;
      c.beginPath();
      c.moveTo(x0, y0);
      c.quadraticCurveTo(x, y, x1, y1);
      c.stroke();
      c.beginPath();
      for (const point of [[x1, y1], ...head]) c.lineTo(...point);
      c.closePath();
      c.stroke();
      c.fill();
    }
  }

  /** Draw an arrow from the end of one run to the start of another. */
  arrow(c, view, from, to, colour) {
    const a = this.boxOf(view, from);
    const b = this.boxOf(view, to);
    const middle = (box, other) => {
      const at = (other.pieces[0][0] + other.pieces[0][1]) / 2;
      const nearest = box.pieces.reduce((best, piece) => (Math.abs((piece[0] + piece[1]) / 2 - at) < Math.abs((best[0] + best[1]) / 2 - at) ? piece : best));
      return (nearest[0] + nearest[1]) / 2;
    };
    const [x0, y0, x1, y1] = [a.right - 1, middle(a, b), b.left, middle(b, a)];
    const bend = Math.min(60, Math.max(14, Math.abs(x1 - x0) / 2, Math.abs(y1 - y0) / 4));
    const trace = () => {
      c.beginPath();
      c.moveTo(x0, y0);
      c.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
      c.stroke();
    };
    c.strokeStyle = this.theme.ground;
    c.lineWidth = 5;
    trace();
    c.strokeStyle = c.fillStyle = colour;
    c.lineWidth = 2;
    trace();
    c.beginPath();
    c.moveTo(x1, y1);
    c.lineTo(x1 - 8, y1 - 4.5);
    c.lineTo(x1 - 8, y1 + 4.5);
    c.fill();
  }
}
