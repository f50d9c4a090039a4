// Completes the address of a page that was just turned to, in its own step of the browser's history.

export default function ({ data }) {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(data)) if (!query.has(key)) query.append(key, value);
  history.replaceState(history.state, "", `${location.pathname}?${query}`);
}
