// Sliders that report their values while they move. Only one message at a time is unanswered; then the newest is sent.
// If the server asks for it, they send one more when they come to rest. Undo first undoes moves of the sliders.

const REST_MS = 500;
const LOST_MS = 15000;
const known = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".what-if");
  if (!root || !data) return undefined;
  let sliders = known.get(root);
  if (!sliders) known.set(root, (sliders = new Sliders(root, data)));
  sliders.send = (asked) => setTriggerValue("moved", asked);
  sliders.take(data);
  return () => sliders.end();
}

class Sliders {
  constructor(root, { serial, turn }) {
    this.root = root;
    this.serial = serial;
    this.turn = turn;
    this.flying = 0;
    this.sent = "";
    this.rows = new Map();
    this.send = (_name, _value) => {};
    root.textContent = "";
    this.forget();
    this.hear = (event) => this.key(event);
    window.addEventListener("keydown", this.hear, true); // captured, to handle keys before the page does
  }

  /** Forget the moves for undo. */
  forget() {
    this.past = [];
    this.future = [];
    this.moving = false;
  }

  key(event) {
    if (!this.root.isConnected) return window.removeEventListener("keydown", this.hear, true);
    const at = event.composedPath()[0];
    const writes = ["TEXTAREA", "SELECT"].includes(at?.tagName) || (at?.tagName === "INPUT" && at.type !== "range");
    const key = event.key.toLowerCase();
    if (!(event.ctrlKey || event.metaKey) || event.altKey || !["z", "y"].includes(key) || writes) return undefined;
    const [from, to] = event.shiftKey || key === "y" ? [this.future, this.past] : [this.past, this.future];
    if (!from.length) return undefined;
    event.preventDefault();
    event.stopImmediatePropagation();
    to.push(this.said());
    const { at: stops, device } = JSON.parse(from.pop());
    for (const [field, stop] of Object.entries(stops)) if (this.rows.has(field)) this.show(field, stop);
    if (this.chooser) this.chooser.value = String(device);
    this.before = this.said();
    return this.fly();
  }

  /** Begin or continue a move. */
  begin() {
    if (!this.moving) {
      this.past.push(this.before);
      this.future = [];
    }
    this.moving = true;
  }

  end() {
    clearTimeout(this.resting);
    clearTimeout(this.lost);
  }

  take(data) {
    const elsewhere = data.turn !== this.turn; // the page has set the sliders, so earlier messages no longer count
    const arrived = this.flying > 0 && data.serial === this.flying;
    if (arrived || elsewhere) this.flying = 0;
    if (elsewhere || (this.named && this.named !== data.devices.join())) this.forget();
    this.turn = data.turn;
    this.devices = data.devices;
    for (const [field, row] of this.rows) {
      if (data.sliders.some((each) => each.field === field)) continue;
      row.root.remove();
      this.rows.delete(field);
    }
    for (const slider of data.sliders) this.fit(slider);
    if (this.flying) return;
    if (arrived && !elsewhere && this.said() !== this.sent) return void this.fly();
    for (const slider of data.sliders) this.show(slider.field, slider.at);
    if (this.chooser) this.chooser.value = String(data.device);
    if (!this.moving) this.before = this.said();
    clearTimeout(this.resting);
    if (data.rests) this.resting = setTimeout(() => this.fly(true), REST_MS);
  }

  /** Return the row of a slider, with its stops. */
  fit(slider) {
    let row = this.rows.get(slider.field);
    if (!row) {
      const line = put(this.root, "div", "row");
      const name = put(line, "span", "name");
      const range = put(line, "input", "");
      Object.assign(range, { type: "range", min: 0, step: 1 });
      range.dataset.field = slider.field;
      range.setAttribute("aria-label", slider.label);
      range.addEventListener("input", () => this.moved(slider.field));
      range.addEventListener("change", () => this.rest());
      this.rows.set(slider.field, (row = { root: line, name, range, value: put(line, "output", "") }));
      put(name, "span", "").textContent = slider.label;
      line.title = slider.about;
    }
    if (slider.of) this.choose(row.name);
    row.texts = slider.texts;
    row.own = slider.own;
    row.range.max = slider.texts.length - 1;
    row.range.style.setProperty("--own", String(slider.own / (slider.texts.length - 1)));
  }

  /** Update the choice of the device for the last slider. */
  choose(place) {
    if (!this.chooser) {
      this.chooser = put(place, "select", "");
      this.chooser.setAttribute("aria-label", "Device");
      this.chooser.addEventListener("change", () => {
        this.begin();
        this.fly();
        this.rest();
      });
    }
    if (this.named === this.devices.join()) return;
    this.named = this.devices.join();
    this.chooser.textContent = "";
    this.devices.forEach((text, at) => Object.assign(put(this.chooser, "option", ""), { value: at, textContent: text }));
  }

  rest() {
    this.moving = false;
    this.before = this.said();
  }

  moved(field) {
    this.begin();
    this.show(field, +this.rows.get(field).range.value);
    this.fly();
  }

  show(field, at) {
    const { range, value, texts, own, root } = this.rows.get(field);
    if (+range.value !== at) range.value = at;
    value.textContent = texts[at];
    range.setAttribute("aria-valuetext", texts[at]);
    root.classList.toggle("other", at !== own);
  }

  said() {
    const at = Object.fromEntries([...this.rows].map(([field, { range }]) => [field, +range.value]));
    return JSON.stringify({ at, device: +(this.chooser?.value ?? 0) });
  }

  fly(rest = false) {
    clearTimeout(this.resting);
    if (this.flying) return;
    this.sent = this.said();
    this.flying = ++this.serial;
    this.send({ serial: this.serial, turn: this.turn, rest, ...JSON.parse(this.sent) });
    clearTimeout(this.lost);
    this.lost = setTimeout(() => (this.flying = 0), LOST_MS);
  }
}

function put(parent, tag, name) {
  const made = parent.appendChild(document.createElement(tag));
  if (name) made.className = name;
  return made;
}
