// Counts how often the keys of Undo and Redo are pressed in this tab, so that the server makes up for presses that come
// while the page runs: it is told how many there were in all, and the latest of them.

const MOST_TOLD = 50;

export default function ({ setStateValue }) {
  const first = !window.tesselPresses;
  const presses = (window.tesselPresses ??= { total: 0, last: "", tell: null });
  presses.tell = setStateValue;
  if (first) window.addEventListener("keydown", pressed);
  return () => {
    if (presses.tell === setStateValue) presses.tell = null;
  };
}

function pressed(event) {
  const presses = window.tesselPresses;
  const at = event.composedPath()[0];
  const writes = at?.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at?.tagName);
  if (!(event.ctrlKey || event.metaKey) || event.altKey || event.key.toLowerCase() !== "z" || writes || !presses.tell) return;
  event.preventDefault();
  presses.total += 1;
  presses.last = (presses.last + (event.shiftKey ? "r" : "u")).slice(-MOST_TOLD);
  presses.tell("presses", { total: presses.total, last: presses.last });
}
