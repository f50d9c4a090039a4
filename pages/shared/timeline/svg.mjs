// Writes SVG through the interface of a canvas's 2D context, as far as the timeline needs it.

const rounded = (number) => String(Math.round(number * 100) / 100);
const escaped = (text) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);

let pens = 0; // makes ids unique among several pictures in one page

export class SvgPen {
  constructor() {
    this.number = pens++;
    this.parts = [];
    this.tiles = new Map();
    this.clips = 0;
    this.saved = [];
    this.d = this.clipped = "";
    this.dash = [];
    this.ruler = document.createElement("canvas").getContext("2d");
    /** @type {any} a colour, or a pattern with its `tile` */
    this.fillStyle = "#000";
    this.strokeStyle = "#000";
    this.lineWidth = this.globalAlpha = 1;
    this.font = "10px sans-serif";
    this.textAlign = "left";
  }

  setTransform() {} // everything is drawn in CSS pixels
  clearRect() {}
  setLineDash(dash) { this.dash = dash; }
  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }

  save() {
    const { clipped, dash, fillStyle, strokeStyle, lineWidth, globalAlpha, font, textAlign } = this;
    this.saved.push({ clipped, dash, fillStyle, strokeStyle, lineWidth, globalAlpha, font, textAlign });
  }
  restore() { Object.assign(this, this.saved.pop()); }

  beginPath() { this.d = ""; }
  closePath() { this.d += "Z"; }
  moveTo(...point) { this.d += `M${point.map(rounded).join(" ")}`; }
  lineTo(...point) { this.d += `L${point.map(rounded).join(" ")}`; }
  bezierCurveTo(...points) { this.d += `C${points.map(rounded).join(" ")}`; }
  rect(x, y, width, height) { this.d += `M${rounded(x)} ${rounded(y)}h${rounded(width)}v${rounded(height)}h${rounded(-width)}Z`; }
  arc(x, y, radius) { // supports only full circles
    const half = `a${radius} ${radius} 0 1 0 `;
    this.d += `M${rounded(x - radius)} ${rounded(y)}${half}${2 * radius} 0${half}${-2 * radius} 0`;
  }

  clip() {
    const id = `clip${this.number}-${this.clips++}-${this.parts.length}`;
    this.parts.push(`<clipPath id="${id}"><path d="${this.d}"/></clipPath>`);
    this.clipped = ` clip-path="url(#${id})"`;
  }
  fill() { this.put("path", `d="${this.d}"`, this.filled()); }
  stroke() { this.put("path", `d="${this.d}" fill="none"`, this.stroked()); }
  fillRect(...box) { this.put("rect", boxed(...box), this.filled()); }
  strokeRect(...box) { this.put("rect", `${boxed(...box)} fill="none"`, this.stroked()); }
  fillText(text, x, y) {
    const anchor = { center: "middle", right: "end", end: "end" }[this.textAlign] ?? "start";
    const look = `x="${rounded(x)}" y="${rounded(y)}" text-anchor="${anchor}" dominant-baseline="central" style="font:${escaped(this.font)}"`;
    this.put("text", look, this.filled(), escaped(text));
  }
  drawImage(image, ...box) {
    const [left, top, width, height] = box.length > 4 ? box : [0, 0, image.width, image.height];
    const part = Object.assign(document.createElement("canvas"), { width, height });
    part.getContext("2d").drawImage(image, -left, -top);
    const look = `${boxed(...box.slice(-4))} preserveAspectRatio="none" style="image-rendering:pixelated"`;
    this.put("image", `${look} href="${part.toDataURL()}"`, "");
  }

  put(element, look, colour, inside = "") {
    const faint = this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : "";
    this.parts.push(`<${element} ${look}${colour}${faint}${this.clipped}>${inside}</${element}>`);
  }
  filled() {
    const { tile } = this.fillStyle;
    if (!tile) return ` fill="${escaped(this.fillStyle)}"`;
    if (!this.tiles.has(tile)) {
      this.tiles.set(tile, `tile${this.number}-${this.tiles.size}-${this.parts.length}`);
      const size = `width="${tile.width}" height="${tile.height}"`;
      this.parts.push(`<pattern id="${this.tiles.get(tile)}" patternUnits="userSpaceOnUse" ${size}><image ${size} href="${tile.toDataURL()}"/></pattern>`);
    }
    return ` fill="url(#${this.tiles.get(tile)})"`;
  }
  stroked() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    return ` stroke="${escaped(this.strokeStyle)}" stroke-width="${this.lineWidth}"${dash}`;
  }
}

function boxed(x, y, width, height) {
  const [left, top] = [Math.min(x, x + width), Math.min(y, y + height)];
  return `x="${rounded(left)}" y="${rounded(top)}" width="${rounded(Math.abs(width))}" height="${rounded(Math.abs(height))}"`;
}
