// A deck: sentences and live timelines, slide by slide, by the keys of a presenter; also in a file without a network.

const known = new WeakMap();
const WORD_S = 0.45; // to read a word of a slide that goes on by itself, and to look at it
const LOOK_S = 4;
const MOVES = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1, Home: -Infinity, End: Infinity };

/** Show a deck in `root`, with what draws a timeline in an element; `moved` hears of the slide that is shown. */
export class Slides {
  constructor(root, deck, showTimeline, moved = () => {}) {
    Object.assign(this, { root, deck, showTimeline, moved, at: 0 });
    root.tabIndex = 0;
    root.setAttribute("role", "group");
    root.setAttribute("aria-roledescription", "slides");
    root.setAttribute("aria-label", deck.title);
    root.textContent = "";
    this.bar = put(root, "div", "moves");
    this.body = put(root, "div", "slide");
    this.back = this.button("‹ Previous", "Previous slide (Left, Page Up)", () => this.go(-1));
    this.count = put(this.bar, "span", "count");
    this.on = this.button("Next ›", "Next slide (Right, Page Down)", () => this.go(1));
    this.through = this.button("", "Show slide after slide, each as long as it takes to read", () => this.goThrough(!this.going));
    this.full = this.button("Full screen", "Fill the screen, and back (F)", () => this.fill());
    root.addEventListener("keydown", (event) => this.key(event));
    this.stop();
    root.addEventListener("fullscreenchange", () => document.fullscreenElement || root.classList.remove("full"));
  }

  button(text, about, press) {
    const made = Object.assign(put(this.bar, "button", ""), { type: "button", title: about, textContent: text });
    made.addEventListener("click", press);
    return made;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (event.key in MOVES) this.go(MOVES[event.key]);
    else if (event.key === "f" || event.key === "F") this.fill();
    else if (event.key === " " && !event.composedPath().some((each) => each.tagName === "BUTTON" || each.tagName === "CANVAS")) this.play();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Show slide after slide from this one on, or stop at it. */
  goThrough(on) {
    if (!on) return this.stop();
    this.going = true;
    this.root.dataset.going = "";
    this.through.textContent = "Pause";
    this.stay();
  }

  /** Play this slide for as long as it takes to read, and go on. */
  stay() {
    const { lines } = this.deck.slides[this.at];
    this.show(this.at);
    this.play(false);
    const seconds = LOOK_S + WORD_S * lines.join(" ").split(" ").length;
    this.next = setTimeout(() => {
      if (!this.root.isConnected || this.at === this.deck.slides.length - 1) return this.stop();
      this.at += 1;
      this.stay();
    }, 1000 * seconds);
  }

  stop() {
    clearTimeout(this.next);
    this.going = false;
    delete this.root.dataset.going;
    this.through.textContent = "Play through";
  }

  /** Begin to play, or pause, what the slide shows. */
  play(focused = true) {
    const over = this.body.querySelector("canvas.over");
    if (!over) return;
    if (focused) over.focus();
    over.dispatchEvent(new KeyboardEvent("keydown", { key: " ", bubbles: true, cancelable: true }));
  }

  /** Fill the screen, or the window where the browser grants no more; and back. */
  fill() {
    const { root } = this;
    if (document.fullscreenElement) document.exitFullscreen();
    else if (root.classList.contains("full")) root.classList.remove("full");
    else {
      root.classList.add("full");
      root.requestFullscreen?.().catch(() => {});
    }
  }

  go(by) {
    const last = this.deck.slides.length - 1;
    const to = Math.max(0, Math.min(last, this.at + by));
    this.stop();
    if (to !== this.at) this.show(to);
  }

  show(at) {
    const inside = this.root.contains(this.root.getRootNode().activeElement);
    this.at = at;
    const { title, lines, picture, data, height } = this.deck.slides[at];
    this.end?.();
    this.body.textContent = "";
    put(this.body, "h2", "").textContent = title;
    for (const line of lines) put(this.body, "p", "").textContent = line;
    if (picture) put(this.body, "div", "host").innerHTML = picture; // our own SVG
    if (data) {
      const host = put(this.body, "div", "host");
      host.style.height = `${height}px`;
      put(host, "div", "timeline");
      const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
      this.end = this.showTimeline({ data: bytes, parentElement: host, setStateValue: () => {}, setTriggerValue: () => {} });
    }
    this.back.disabled = at === 0;
    this.on.disabled = at === this.deck.slides.length - 1;
    this.count.textContent = `${at + 1} / ${this.deck.slides.length}`;
    this.root.dataset.slide = at + 1;
    if (inside) this.root.focus();
    this.moved(at);
  }
}

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".slides");
  if (!root || !data) return undefined;
  const shown = known.get(root);
  if (shown?.deck.title === data.title) return undefined;
  const slides = new Slides(root, data, showTimeline);
  known.set(root, slides);
  if (data.goes) slides.goThrough(true);
  else slides.show(0);
  return undefined;
}

function put(parent, tag, name) {
  const made = parent.appendChild(document.createElement(tag));
  if (name) made.className = name;
  return made;
}
