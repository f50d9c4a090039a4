// Completes the address of a page that was just turned to, in its own step of the browser's history, and lets no other
// change of a page's address be a step, but for those that Back takes back.

const shared = /** @type {{ pushState: any }} */ (history); // what is kept outlives this module, which may be loaded anew

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
  if (shared.pushState.completed === data.once) return; // made anew, after the address has changed
  shared.pushState.completed = data.once;
  const query = new URLSearchParams(location.search);
  for (const key of data.not) query.delete(key);
  // What is seen of a timeline it writes itself, and may have written since.
  for (const [key, value] of Object.entries(wanted)) if (!seen.includes(key) || !query.has(key)) query.set(key, value);
  history.replaceState(history.state, "", `${location.pathname}?${query}`);
}
