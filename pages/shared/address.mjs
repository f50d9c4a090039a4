// Complete the address after a change of page, in the same entry of the browser's history. No other change of the
// address adds an entry, except for keys that Back should undo.

const shared = /** @type {{ pushState: any }} */ (history); // stored here, because this module may be loaded again

if (!shared.pushState.steps) {
  const push = history.pushState.bind(history);
  const replacing = (state, title, url) => {
    const next = new URL(url ?? location.href, location.href);
    const now = new URLSearchParams(location.search);
    const other = (key) => next.searchParams.get(key) !== now.get(key);
    if (next.pathname !== location.pathname || shared.pushState.steps.some(other)) push(state, title, url);
    else history.replaceState(state, title, url);
  };
  shared.pushState = Object.assign(replacing, { steps: [] });
}

export default function ({ data }) {
  const { wanted, seen } = data;
  shared.pushState.steps = data.steps;
  if (shared.pushState.completed === data.once) return; // this component was created again, and the address is already complete
  shared.pushState.completed = data.once;
  const query = new URLSearchParams(location.search);
  for (const key of data.not) query.delete(key);
  // The timeline writes its own parts, and may have changed them since.
  for (const [key, value] of Object.entries(wanted)) if (!seen.includes(key) || !query.has(key)) query.set(key, value);
  history.replaceState(history.state, "", `${location.pathname}?${query}`);
}
