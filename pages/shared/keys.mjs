// Counts how often the keys of Undo and Redo are pressed in this tab, so that the server makes up for presses that come
// while the page runs: it is told how many there were in all, and the latest of them.  A session of the server's counts
// from its beginning, also where an older page goes on in it.

const MOST_TOLD = 50;
/** A press counts for this long, in milliseconds, after a page without the buttons came, or while this one is made anew. */
const AWAY_MS = 1000;

export default function ({ data, setStateValue }) {
  const first = !window.tesselPresses;
  const presses = (window.tesselPresses ??= {});
  if (presses.of !== data.of) Object.assign(presses, { of: data.of, total: 0, told: 0, last: "", left: 0 });
  presses.tell = setStateValue;
  if (first) window.addEventListener("keydown", pressed);
  tell(presses);
  return () => {
    if (presses.tell === setStateValue) Object.assign(presses, { tell: null, left: performance.now() });
  };
}

function tell(presses) {
  if (!presses.tell || presses.told === presses.total) return;
  presses.told = presses.total;
  presses.tell("presses", { of: presses.of, total: presses.total, last: presses.last });
}

function pressed(event) {
  const presses = window.tesselPresses;
  const at = event.composedPath()[0];
  const writes = at?.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at?.tagName);
  const key = event.key.toLowerCase();
  if (!(event.ctrlKey || event.metaKey) || event.altKey || !["z", "y"].includes(key) || writes) return;
  if (!presses.tell && performance.now() - presses.left > AWAY_MS) return;
  event.preventDefault();
  presses.total += 1;
  presses.last = (presses.last + (event.shiftKey || key === "y" ? "r" : "u")).slice(-MOST_TOLD);
  tell(presses);
}
