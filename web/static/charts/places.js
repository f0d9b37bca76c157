// The ranks of a job by host, as squares; whoever is named stands out by colour and by outline.

import { h } from "../dom.js";
import { ranks as rankWords } from "../words.js";
import { canvas } from "./canvas.js";
import { colours } from "./colours.js";

const NAMES_UP_TO = 64; // hosts whose names are written
const LEFT = 132;

// hosts: [{host, ranks}]; marks: rank -> colour; chosen: Set of ranks that are shown full, or null
export function placesChart({ hosts, marks, chosen, links }) {
  const named = hosts.length <= NAMES_UP_TO;
  const total = hosts.reduce((sum, host) => sum + host.ranks.length, 0);
  const said = h("p", { class: "said", "aria-live": "polite" }, " ");
  let places = [];
  let size = 16;

  function layout(width) {
    places = [];
    if (named) {
      const most = Math.max(...hosts.map((host) => host.ranks.length), 1);
      const left = width < 500 ? 84 : LEFT;
      size = Math.max(Math.min(Math.floor((width - left) / most), 28), 5);
      const perRow = Math.max(Math.floor((width - left) / size), 1);
      let y = 0;
      for (const host of hosts) {
        host.ranks.forEach((rank, i) => places.push({ rank, host: host.host, x: left + (i % perRow) * size, y: y + Math.floor(i / perRow) * size }));
        host.y = y;
        y += Math.ceil(host.ranks.length / perRow) * size + 6;
      }
      return y;
    }
    // A large job: one host after the other, a gap between hosts where there is room.
    const gap = hosts.length <= 2048 ? 2 : 0;
    size = Math.max(Math.min(Math.floor(Math.sqrt((width * 420) / total)), 14), 3);
    let x = 0;
    let y = 0;
    for (const host of hosts) {
      if (x + host.ranks.length * size > width) { x = 0; y += size + gap; }
      for (const rank of host.ranks) {
        if (x + size > width) { x = 0; y += size; }
        places.push({ rank, host: host.host, x, y });
        x += size;
      }
      x += gap;
    }
    return y + size;
  }

  const drawn = canvas(`${total} ranks on ${hosts.length} hosts`, (width) => Math.max(layout(width), 24), (context, width) => {
    const c = colours();
    context.clearRect(0, 0, width, 1e5);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    if (named) {
      context.fillStyle = c.dim;
      for (const host of hosts) context.fillText(host.host, 0, host.y + size / 2, (width < 500 ? 84 : LEFT) - 10);
    }
    const at = new Map();
    for (const place of places) {
      const mark = marks.get(place.rank);
      context.globalAlpha = chosen && !chosen.has(place.rank) ? 0.2 : 1;
      context.fillStyle = mark ? c[mark] : c.ok;
      const edge = size > 6 ? 1 : 0;
      context.fillRect(place.x, place.y, size - edge, size - edge);
      if (size >= 22) {
        context.fillStyle = c.back;
        context.textAlign = "center";
        context.fillText(String(place.rank), place.x + size / 2, place.y + size / 2, size - 4);
        context.textAlign = "left";
      }
      at.set(place.rank, place);
    }
    context.globalAlpha = 1;
    for (const place of places) {
      if (marks.get(place.rank) !== "culprit") continue;
      context.strokeStyle = c.text;
      context.lineWidth = 2;
      context.strokeRect(place.x - 1, place.y - 1, size + 1, size + 1);
    }
    for (const [a, b] of links) {
      if (!at.has(a) || !at.has(b)) continue;
      context.strokeStyle = c.culprit;
      context.lineWidth = 3;
      context.beginPath();
      context.moveTo(at.get(a).x + size / 2, at.get(a).y + size / 2);
      context.lineTo(at.get(b).x + size / 2, at.get(b).y + size / 2);
      context.stroke();
    }
  });
  drawn.element.addEventListener("pointermove", (event) => {
    const box = drawn.element.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const place = places.find((one) => x >= one.x && x < one.x + size && y >= one.y && y < one.y + size);
    said.textContent = place ? `${rankWords([place.rank])} on ${place.host}${marks.has(place.rank) ? `: ${marks.get(place.rank)}` : ""}` : " ";
  });
  return { node: h("figure", null, drawn.node, said), leave: drawn.leave };
}
