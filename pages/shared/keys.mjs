// Count the presses of the undo and redo keys in this tab. The server gets the total and the latest presses, so that it
// can handle presses that came while a page was running. A new session of the server starts a new count.

const MAX_SENT = 50;
/** Milliseconds during which presses still count after the buttons have disappeared, for example while a page reloads. */
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
  presses.last = (presses.last + (event.shiftKey || key === "y" ? "r" : "u")).slice(-MAX_SENT);
  tell(presses);
}
