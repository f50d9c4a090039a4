// List of the compared pairs. A row has a handle, which is dragged or moved by arrow keys, and a field for its name. A
// moving row keeps its place in the document while its neighbours move, so that it keeps pointer and focus.

const GRIP = '<svg viewBox="0 0 10 16" width="10" height="16" aria-hidden="true"><path d="M3 3h0M7 3h0M3 8h0M7 8h0M3 13h0M7 13h0"/></svg>';
const LOST_MS = 5000;
const known = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".pairs");
  if (!root || !data) return undefined;
  let rows = known.get(root);
  if (!rows) known.set(root, (rows = new Rows(root)));
  rows.send = setTriggerValue;
  rows.take(data);
  return () => clearTimeout(rows.lost);
}

class Rows {
  constructor(root) {
    this.list = root.querySelector("ol");
    this.status = root.querySelector("[role=status]");
    this.items = new Map();
    this.send = (_name, _value) => {};
    this.sent = "";
  }

  /** Take data from the server. Answers to earlier moves are ignored, because they would undo the latest one. */
  take(data) {
    this.data = data;
    const { rows, longest } = data;
    if (this.dragged || (this.sent && rows.map((row) => row.id).join() !== this.sent)) return;
    this.sent = "";
    clearTimeout(this.lost);
    for (const [id, item] of this.items) {
      if (rows.some((row) => row.id === id)) continue;
      item.root.remove();
      this.items.delete(id);
    }
    rows.forEach(({ id, name, usual }, at) => {
      const item = this.items.get(id) ?? this.make(id, longest);
      item.name = name;
      item.field.placeholder = usual;
      if (!item.field.matches(":focus")) item.field.value = name;
      if (this.list.children[at] !== item.root) this.list.insertBefore(item.root, this.list.children[at]);
    });
    this.count();
  }

  make(id, longest) {
    const root = document.createElement("li");
    const grip = root.appendChild(document.createElement("button"));
    const field = root.appendChild(document.createElement("input"));
    root.dataset.id = id;
    Object.assign(grip, { type: "button", title: "Drag, or press the arrow keys", innerHTML: GRIP });
    Object.assign(field, { type: "text", maxLength: longest, autocomplete: "off" });
    grip.addEventListener("pointerdown", (event) => this.grab(event, root, grip));
    grip.addEventListener("pointermove", (event) => this.follow(event));
    grip.addEventListener("pointerup", () => this.drop());
    grip.addEventListener("pointercancel", () => this.drop(true));
    grip.addEventListener("keydown", (event) => this.press(event, root));
    field.addEventListener("change", () => this.send("named", { id, name: field.value }));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") field.value = this.items.get(id).name;
      if (event.key === "Enter" || event.key === "Escape") field.blur();
      if (event.key === "Escape") event.stopPropagation();
    });
    const item = { root, grip, field, name: "" };
    this.items.set(id, item);
    return item;
  }

  order() {
    return [...this.list.children].map((row) => row.dataset.id);
  }

  count() {
    this.order().forEach((id, at, all) => {
      const { grip, field, name } = this.items.get(id);
      grip.setAttribute("aria-label", `Move ${name}, row ${at + 1} of ${all.length}`);
      field.setAttribute("aria-label", `Name of row ${at + 1}`);
    });
  }

  grab(event, row, grip) {
    if (event.button || this.dragged) return;
    event.preventDefault();
    grip.focus();
    grip.setPointerCapture(event.pointerId);
    row.classList.add("dragged");
    this.dragged = { row, before: this.order() };
  }

  follow(event) {
    if (!this.dragged) return;
    const { row } = this.dragged;
    const middle = (each) => each.getBoundingClientRect().top + each.offsetHeight / 2;
    const above = row.previousElementSibling, below = row.nextElementSibling;
    if (above && event.clientY < middle(above)) row.after(above);
    else if (below && event.clientY > middle(below)) row.before(below);
    else return;
    this.follow(event);
  }

  drop(back = false) {
    if (!this.dragged) return;
    const { row, before } = this.dragged;
    this.dragged = undefined;
    row.classList.remove("dragged");
    if (back) this.place(row, before.indexOf(row.dataset.id));
    if (this.order().join() !== before.join()) this.moved(row);
    else this.take(this.data);
  }

  press(event, row) {
    const at = this.order().indexOf(row.dataset.id), last = this.list.children.length - 1;
    if (event.key === "Escape" && this.dragged) this.drop(true);
    else if (!this.dragged && event.key in { ArrowUp: 0, ArrowDown: 0, Home: 0, End: 0 }) {
      const to = { ArrowUp: Math.max(0, at - 1), ArrowDown: Math.min(last, at + 1), Home: 0, End: last }[event.key];
      if (to !== at) this.place(row, to), this.moved(row);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  place(row, to) {
    const rows = this.list.children;
    while ([...rows].indexOf(row) > to) row.after(row.previousElementSibling);
    while ([...rows].indexOf(row) < to) row.before(row.nextElementSibling);
  }

  moved(row) {
    this.count();
    const order = this.order(), { name } = this.items.get(row.dataset.id);
    this.status.textContent = `${name} is row ${order.indexOf(row.dataset.id) + 1} of ${order.length}.`;
    this.sent = order.join();
    clearTimeout(this.lost);
    this.lost = setTimeout(() => {
      this.sent = "";
      this.take(this.data);
    }, LOST_MS);
    this.send("moved", order);
  }
}
