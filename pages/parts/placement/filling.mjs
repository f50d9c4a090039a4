// Table of the dynamic program over ideals, filled cell by cell, with the lattice and the cuts of a cell.

const known = new WeakMap();
const PLAYED_S = 60; // limit for playing the whole table
const CELL_S = 0.8;
const MIN_SCALE = 0.8; // a picture that needs a smaller scale gets a scroll bar
const MOVES = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".filling");
  if (!root || !data) return undefined;
  const filling = known.get(root) ?? new Filling(root, data);
  known.set(root, filling);
  filling.showBeside(data.beside);
  return () => filling.stop();
}

class Filling {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.at = 0;
    this.cells = data.ideals.length;
    this.devices = data.best.length - 1;
    root.addEventListener("keydown", (event) => this.key(event));
    this.line = put(root, "p", "line", { role: "status" });
    const tools = put(root, "div", "tools");
    this.back = this.button(tools, "‹ Back", "Previous cell (Left)", () => this.go(this.at - 1));
    this.on = this.button(tools, "Step ›", "Next cell (Right)", () => this.go(this.at + 1));
    this.through = this.button(tools, "", "Fill one cell after another (Space)", () => (this.playing ? this.stop() : this.play()));
    this.row = this.button(tools, "Next device", "Go to the first cell with one more device (Page Down)", () => this.go(this.firstOf(this.devicesAt + 1)));
    this.whole = this.button(tools, "Whole table", "Fill the whole table and trace the optimal stages back (End)", () => this.go(Infinity));
    this.range = put(tools, "input", "", { type: "range", min: 0, max: this.last, ariaLabel: "Cells filled" });
    this.range.addEventListener("input", () => this.go(Number(this.range.value)));
    const sides = put(root, "div", "sides");
    const picture = put(sides, "div", "lattice", { tabIndex: 0, role: "group", ariaLabel: "The ideals" });
    picture.innerHTML = data.picture; // SVG from our server
    this.svg = shrunk(picture);
    const edge = put(this.svg, "path", "cut", {}, this.svg.namespaceURI);
    this.svg.prepend(edge);
    this.edge = edge;
    this.circles = [...this.svg.querySelectorAll("[data-ideal]")];
    this.values = [...this.svg.querySelectorAll("[data-value]")];
    this.places = this.circles.map((each) => [each.getAttribute("cx"), each.getAttribute("cy")]);
    this.table = this.makeTable(put(sides, "div", "table", { tabIndex: 0, role: "group", ariaLabel: "The table" }));
    this.cuts = put(root, "div", "cuts", { tabIndex: 0, role: "group", ariaLabel: "The cuts of this cell" });
    this.beside = put(root, "div", "beside");
    if (data.called.length) put(put(root, "details", ""), "summary", "").textContent = "Meaning of the numbers";
    for (const each of data.called) put(root.querySelector("details"), "span", "").textContent = each;
    this.stop();
    this.draw();
  }

  get last() {
    return this.cells * this.devices;
  }

  /** Number of devices and ideal of the cell that was filled last. */
  get devicesAt() {
    return this.at ? 1 + Math.floor((this.at - 1) / this.cells) : 0;
  }

  get ideal() {
    return this.at ? (this.at - 1) % this.cells : -1;
  }

  firstOf(devices) {
    return (devices - 1) * this.cells + 1;
  }

  button(parent, text, about, press) {
    const made = put(parent, "button", "", { type: "button", title: about, textContent: text });
    made.addEventListener("click", press);
    return made;
  }

  makeTable(host) {
    const table = put(host, "table", "");
    const head = put(put(table, "thead", ""), "tr", "");
    put(head, "th", "", { scope: "col" }).textContent = `Ideal up to … (${this.data.unit || "time"})`;
    for (let k = 1; k <= this.devices; k += 1) put(head, "th", "", { scope: "col" }).textContent = k === 1 ? "1 device" : `${k} devices`;
    const body = put(table, "tbody", "");
    return this.data.ideals.map((name, i) => {
      const row = put(body, "tr", "");
      put(row, "th", "", { scope: "row" }).textContent = name;
      return Array.from({ length: this.devices }, (_, k) => {
        const cell = put(row, "td", "");
        cell.addEventListener("click", () => this.go(this.firstOf(k + 1) + i));
        return cell;
      });
    });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const inside = event.composedPath()[0];
    const own = inside.tagName === "INPUT" || (event.key === " " && ["BUTTON", "SUMMARY"].includes(inside.tagName));
    if (own && event.key !== "PageDown" && event.key !== "PageUp") return;
    if (event.key in MOVES) this.go(this.at + MOVES[event.key]);
    else if (event.key === "PageDown") this.go(this.firstOf(this.devicesAt + 1));
    else if (event.key === "PageUp") this.go(this.firstOf(this.devicesAt - 1));
    else if (event.key === " ") this.playing ? this.stop() : this.play();
    else return;
    event.preventDefault();
  }

  play() {
    if (this.at === this.last) this.at = 0;
    this.playing = true;
    this.through.textContent = "Pause";
    const step = () => {
      this.at = Math.min(this.last, this.at + 1);
      this.draw();
      if (this.at === this.last || !this.root.isConnected) this.stop();
      else this.next = setTimeout(step, 1000 * Math.min(CELL_S, PLAYED_S / this.last));
    };
    step();
  }

  stop() {
    clearTimeout(this.next);
    this.playing = false;
    this.through.textContent = "Play";
  }

  go(to) {
    this.stop();
    this.at = Math.max(0, Math.min(this.last, to));
    this.draw();
  }

  draw() {
    const { data, devicesAt: k, ideal, at, last } = this;
    const cut = k > 1 ? this.best(k, ideal) : -1;
    const chain = at === last ? data.chain : cut < 0 ? [] : [cut, ideal];
    this.circles.forEach((circle, i) => {
      const filled = k > 0 && i <= ideal;
      circle.setAttribute("class", `${filled ? "filled" : ""} ${i === ideal ? "now" : ""} ${chain.includes(i) ? "chosen" : ""}`);
      const shown = filled ? data.best[k][i] : k > 1 ? data.best[k - 1][i] : undefined;
      this.values[i].textContent = shown === undefined ? "" : number(shown);
    });
    this.edge.setAttribute("d", chain.map((i, step) => `${step ? "L" : "M"}${this.places[i].join(" ")}`).join(""));
    this.table.forEach((row, i) =>
      row.forEach((cell, d) => {
        const there = this.firstOf(d + 1) + i;
        cell.textContent = there <= at ? number(data.best[d + 1][i]) : "";
        cell.className = there === at ? "now" : d + 1 === k - 1 && i === cut ? "chosen" : "";
      }),
    );
    this.listCuts(k, ideal, cut);
    this.line.textContent = this.says(k, ideal, cut);
    this.range.value = at;
    this.range.setAttribute("aria-valuetext", `${at} of ${last}`);
    this.back.disabled = at === 0;
    this.on.disabled = this.whole.disabled = at === last;
    this.row.disabled = k === this.devices;
    this.root.dataset.filled = at;
    const host = this.svg.parentElement;
    if (ideal >= 0) host.scrollLeft = (this.places[ideal][0] * host.scrollWidth) / this.svg.viewBox.baseVal.width - host.clientWidth / 2;
    const row = this.table[Math.max(0, ideal)][0].parentElement;
    const box = row.closest("div");
    box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }

  /** Return the cut whose larger load is least. Of several, the smallest cut. */
  best(k, ideal) {
    const found = this.choices(k, ideal).reduce((one, other) => (other.larger < one.larger ? other : one));
    return found.larger === Infinity ? -1 : found.cut;
  }

  choices(k, ideal) {
    const load = (each) => (each === null ? Infinity : each);
    return this.data.cuts[ideal].map(([cut, rest]) => {
      const before = load(this.data.best[k - 1][cut]);
      return { cut, before, rest: load(rest), larger: Math.max(before, load(rest)) };
    });
  }

  listCuts(k, ideal, chosen) {
    this.cuts.textContent = "";
    this.cuts.hidden = k < 2;
    if (k < 2) return;
    const table = put(this.cuts, "table", "");
    const head = put(put(table, "thead", ""), "tr", "");
    for (const title of ["Cut after", `${counted(k - 1)} before it`, "One more, with the rest", "The larger"]) put(head, "th", "", { scope: "col" }).textContent = title;
    const body = put(table, "tbody", "");
    for (const { cut, before, rest, larger } of this.choices(k, ideal)) {
      const row = put(body, "tr", cut === chosen ? "chosen" : "");
      put(row, "th", "", { scope: "row" }).textContent = this.data.ideals[cut];
      for (const each of [before, rest, larger]) put(row, "td", "").textContent = number(each);
    }
    const row = body.querySelector(".chosen");
    if (row) this.cuts.scrollTop = row.offsetTop - this.cuts.clientHeight / 2;
  }

  /** Show placements side by side, with titles, sentences and pictures. */
  showBeside(shown) {
    this.beside.textContent = "";
    for (const { title, says, picture } of shown) {
      const one = put(this.beside, "section", "");
      put(one, "h4", "").textContent = title;
      put(one, "p", "").textContent = says;
      put(one, "div", "drawn", { tabIndex: 0, role: "group", ariaLabel: `${title}: the graph` }).innerHTML = picture;
      shrunk(one);
    }
  }

  says(k, ideal, cut) {
    const { data, at, last } = this;
    const took = (load) => `${number(load)} ${data.unit}`.trim();
    if (!k) return `An ideal contains all predecessors of each of its operators. The table has one cell for each of ${this.cells} ideals and each number of devices, up to ${counted(this.devices)}.`;
    const value = data.best[k][ideal];
    const name = ideal ? `up to ${data.ideals[ideal]}` : "nothing";
    if (value === null) return `${counted(k)}, ${name}: no cut fits in memory.`;
    if (at === last) return `The whole graph takes ${took(value)} on ${counted(k)}, and every cut was tried. Tracing back gives the stages ${data.stages.filter(Boolean).map((stage) => `{ ${stage} }`).join(" → ")}.`;
    if (k === 1) return `One device with ${name} takes ${took(value)}: the times of its operators and its transfers.`;
    const { before, rest } = this.choices(k, ideal).find((each) => each.cut === cut);
    return `${counted(k)}, ${name}: of ${data.cuts[ideal].length} cuts, the best is ${cut ? `after ${data.ideals[cut]}` : "the empty one"}. The larger of ${number(before)} and ${number(rest)} is ${took(value)}.`;
  }
}

/** Scale the picture of an element to its width, but not below the readable size. */
function shrunk(host) {
  const svg = host.querySelector("svg");
  svg.style.minWidth = `${MIN_SCALE * svg.viewBox.baseVal.width}px`;
  svg.style.maxHeight = "none";
  return svg;
}

function counted(devices) {
  return devices === 1 ? "1 device" : `${devices} devices`;
}

function number(load) {
  return load === null || load === Infinity ? "–" : String(Number(load.toPrecision(3)));
}

function put(parent, tag, name, properties = {}, space = "http://www.w3.org/1999/xhtml") {
  const made = parent.appendChild(document.createElementNS(space, tag));
  if (name) made.setAttribute("class", name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "role" || key === "scope") made.setAttribute(key, value);
    else made[key] = value;
  }
  return made;
}
