// Deck of slides with sentences and live timelines. It also works in an HTML file offline.

const known = new WeakMap();
const WORD_S = 0.45; // reading time per word, and time to look at the picture, before a slide advances by itself
const LOOK_S = 4;
const [SMALLEST, LARGEST] = [0.5, 1.6]; // scale of a picture in full screen
const PAPER_PIXELS = 690; // width within the margins of A4 and of Letter
const MOVES = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1, Home: -Infinity, End: Infinity };

/** Show a deck in `root`. `moved` is called with the number of the shown slide. */
export class Slides {
  constructor(root, deck, showTimeline, moved = (_at) => {}) {
    this.root = root;
    this.deck = deck;
    this.showTimeline = showTimeline;
    this.moved = moved;
    this.at = 0;
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
    this.through = this.button("", "Advance by itself, with time to read each slide", () => this.goThrough(!this.going));
    this.full = this.button("Full screen", "Enter or leave full screen (F)", () => this.fill());
    root.addEventListener("keydown", (event) => this.key(event));
    this.stop();
    window.addEventListener("beforeprint", () => root.isConnected && this.print());
    window.addEventListener("afterprint", () => this.unprint());
    new ResizeObserver(() => this.fit()).observe(root);
    root.addEventListener("fullscreenchange", () => document.fullscreenElement || this.settling || root.classList.remove("full"));
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

  /** Start or stop advancing by itself. */
  goThrough(on) {
    if (!on) return this.stop();
    this.going = true;
    this.root.dataset.going = "";
    this.through.textContent = "Pause";
    this.stay();
  }

  /** Play this slide for its reading time, then advance. */
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

  /** Play or pause the timeline of the slide. */
  play(focused = true) {
    const over = this.body.querySelector("canvas.over");
    if (!over) return;
    if (focused) over.focus();
    over.dispatchEvent(new KeyboardEvent("keydown", { key: " ", bubbles: true, cancelable: true }));
  }

  /** Enter or leave full screen. If the browser refuses it, fill the window instead. */
  fill() {
    this.root.classList.toggle("full");
    if (!this.settling && this.root.requestFullscreen) this.settle();
  }

  /** Request full screen or leave it, one request at a time, until it matches the latest press. */
  async settle() {
    const wanted = () => this.root.classList.contains("full");
    this.settling = true;
    try {
      while (wanted() !== Boolean(document.fullscreenElement))
        await (wanted() ? this.root.requestFullscreen() : document.exitFullscreen());
    } catch {
      // The browser refused, so the deck fills the window.
    }
    this.settling = false;
  }

  /** In full screen, scale the slide to the largest size that fits. */
  fit() {
    const host = this.body.querySelector(".host");
    if (!host) return;
    host.style.zoom = 1;
    if (!this.root.classList.contains("full")) return;
    const above = host.getBoundingClientRect().top - this.root.getBoundingClientRect().top + this.root.scrollTop;
    const room = this.root.clientHeight - above - parseFloat(getComputedStyle(this.root).paddingBottom);
    host.style.zoom = Math.min(LARGEST, Math.max(SMALLEST, room / host.offsetHeight));
  }

  go(by) {
    const last = this.deck.slides.length - 1;
    const to = Math.max(0, Math.min(last, this.at + by));
    this.stop();
    if (to !== this.at) this.show(to);
  }

  /** Draw all slides below each other, for printing only. */
  print() {
    this.unprint();
    this.printed = put(this.root, "div", "printed");
    // A timeline takes the width of its container, and a hidden container has no width.
    this.printed.style.cssText = `display: block; width: ${PAPER_PIXELS}px; --st-text-color: #000; --st-background-color: #fff`;
    this.ends = this.deck.slides.map((_, at) => this.fillIn(put(this.printed, "section", ""), at));
    this.printed.style.display = "";
  }

  unprint() {
    for (const end of this.ends ?? []) end?.();
    this.printed?.remove();
    this.ends = this.printed = undefined;
  }

  /** Fill an element with a slide. Return the function that ends its timeline, if it has one. */
  fillIn(body, at) {
    const { title, lines, picture, data, height } = this.deck.slides[at];
    put(body, "h2", "").textContent = title;
    for (const line of lines) put(body, "p", "").textContent = line;
    if (picture) put(body, "div", "host").innerHTML = picture; // SVG from our server
    if (!data) return undefined;
    const host = put(body, "div", "host");
    host.style.height = `${height}px`;
    put(host, "div", "timeline");
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    return this.showTimeline({ data: bytes, parentElement: host, setStateValue: () => {}, setTriggerValue: () => {} });
  }

  show(at) {
    const inside = this.root.contains(this.root.getRootNode().activeElement);
    this.at = at;
    this.end?.();
    this.body.textContent = "";
    this.end = this.fillIn(this.body, at);
    this.fit();
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
  root.focus({ preventScroll: true }); // so that keys work at once
  return undefined;
}

function put(parent, tag, name) {
  const made = parent.appendChild(document.createElement(tag));
  if (name) made.className = name;
  return made;
}
