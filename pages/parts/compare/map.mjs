// Map of the winning schedules: a table whose cells are buttons.

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".wins");
  if (!root || !data) return undefined;
  const focused = root.getRootNode().activeElement?.dataset.at;
  root.textContent = "";
  const caption = put(root, "div", data.caption);
  caption.title = data.caption;
  const table = put(root, "table");
  table.setAttribute("aria-label", data.caption);
  const head = put(put(table, "thead"), "tr");
  put(head, "td");
  for (const text of data.columns) put(head, "th", text).scope = "col";
  const body = put(table, "tbody");
  data.rows.forEach((text, row) => {
    const line = put(body, "tr");
    put(line, "th", text).scope = "row";
    data.columns.forEach((_, column) => {
      const place = put(line, "td");
      const cell = data.cells.find((each) => each.column === column && each.row === row);
      if (cell) fill(place, cell, data.here, () => setTriggerValue("opened", { column, row }));
    });
  });
  if (focused) root.querySelector(`[data-at="${focused}"]`)?.focus();
  const legend = put(root, "p");
  for (const { name, colour } of data.legend) {
    const entry = put(legend, "span");
    put(entry, "i").style.backgroundColor = colour;
    entry.append(name);
  }
  return undefined;
}

function fill(place, { column, row, who, how, about, colours, ink }, here, open) {
  const button = put(place, "button");
  button.type = "button";
  button.title = about;
  button.dataset.at = `${column}.${row}`;
  button.setAttribute("aria-label", about);
  if (here?.column === column && here?.row === row) button.setAttribute("aria-current", "true");
  if (colours.length === 1) Object.assign(button.style, { backgroundColor: colours[0], color: ink });
  const name = put(button, "b");
  if (colours.length > 1) for (const each of colours) put(name, "i").style.backgroundColor = each;
  put(name, "span", who);
  put(button, "small", how);
  button.addEventListener("click", open);
}

function put(parent, tag, text = "") {
  const made = parent.appendChild(document.createElement(tag));
  if (text) made.textContent = text;
  return made;
}
