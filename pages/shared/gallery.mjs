// Gallery of samples with pictures, as a list of radio buttons, so that arrow keys work.

export default function ({ data: bytes, parentElement, setStateValue }) {
  const data = JSON.parse(new TextDecoder().decode(bytes));
  const root = parentElement.querySelector(".gallery");
  if (root.dataset.group !== data.group) {
    root.dataset.group = data.group;
    root.setAttribute("aria-label", data.group);
    root.replaceChildren(...data.samples.map(([name, title, svg, about]) => {
      const card = Object.assign(document.createElement("label"), { title: about });
      const choice = Object.assign(document.createElement("input"), { type: "radio", name: data.label, value: name });
      choice.addEventListener("change", () => root.chosen(name));
      const picture = document.createElement("span");
      picture.innerHTML = svg; // safe: the server builds it from numbers only
      card.append(choice, picture, title);
      return card;
    }));
  }
  root.chosen = (name) => setStateValue("chosen", name);
  for (const each of root.querySelectorAll("input")) {
    each.checked = each.value === data.chosen;
    if (each.checked && root.dataset.seen !== data.chosen) {
      requestAnimationFrame(() => { root.scrollTop = each.parentElement.offsetTop - root.offsetTop - 2; });
      root.dataset.seen = data.chosen;
    }
  }
}
