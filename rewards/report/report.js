// On a phone only the first section is open at first.
if (matchMedia("(max-width: 520px)").matches) {
  for (const section of document.querySelectorAll("details.section:not(.first)")) section.open = false;
}
// Values under the pointer: the nearest step of each curve.
for (const svg of document.querySelectorAll("svg[data-lines]")) {
  const lines = JSON.parse(svg.dataset.lines), figure = svg.closest("figure"), cursor = svg.querySelector(".cursor");
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  figure.append(tip);
  const hide = () => { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); };
  const show = (event) => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const near = lines.filter((line) => line.points.length).map((line) => ({
      line, point: line.points.reduce((a, b) => Math.abs(b[1] - x) < Math.abs(a[1] - x) ? b : a),
    }));
    if (!near.length) return;
    const at = near.reduce((a, b) => Math.abs(b.point[1] - x) < Math.abs(a.point[1] - x) ? b : a).point;
    tip.replaceChildren(...[["step", at[0], ""], ...near.filter((n) => Math.abs(n.point[1] - at[1]) < 12)
      .map((n) => [n.line.label || "value", n.point[2], `key c${n.line.color}`])].map(([label, value, key]) => {
      const row = document.createElement("div"), mark = document.createElement("i"), name = document.createElement("span");
      const number = document.createElement("b");
      mark.className = key; name.textContent = label; number.textContent = value;
      row.append(...(key ? [mark] : []), name, number);
      return row;
    }));
    tip.hidden = false;
    const outer = figure.getBoundingClientRect(), left = event.clientX - outer.left;
    tip.style.left = `${Math.min(Math.max(left + 12, 0), outer.width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${box.top - outer.top + 6}px`;
    cursor.setAttribute("x1", at[1]);
    cursor.setAttribute("x2", at[1]);
    cursor.setAttribute("visibility", "visible");
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", hide);
}
