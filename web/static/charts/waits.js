// Who waits for whom: those that are waited for and wait for nobody stand inside, everybody else around them.

import { s } from "../dom.js";
import { ranks } from "../words.js";

const SIZE = 340;
const OUTER = 140;
const INNER = 46;
const NODE = 13;
const MOST = 40; // more on a circle run into each other

// waits: [[waiter, waited for, communicator]]
export function waits(edges) {
  const waiters = new Set(edges.map(([waiter]) => waiter));
  const roots = [...new Set(edges.map(([, other]) => other))].filter((rank) => !waiters.has(rank)).slice(0, MOST);
  const around = [...waiters].sort((a, b) => a - b).slice(0, MOST);
  const at = new Map([
    ...onCircle(around, roots.length ? OUTER : OUTER - 10),
    ...onCircle(roots, roots.length === 1 ? 0 : roots.length > 8 ? INNER * 2 : INNER),
  ]);
  const drawn = edges.filter(([waiter, other]) => at.has(waiter) && at.has(other));
  const left = waiters.size - around.length;
  const label = roots.length ? `${ranks([...waiters])} wait for ${ranks(roots)}` : `${ranks([...waiters])} wait for each other`;
  return [
    s("svg", { class: "waits", width: SIZE, height: SIZE, viewBox: `${-SIZE / 2} ${-SIZE / 2} ${SIZE} ${SIZE}`, role: "img", "aria-label": label },
      s("defs", null, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" },
        s("path", { d: "M0 0 8 4 0 8z" }))),
      drawn.map(([waiter, other, communicator]) => s("g", null, s("title", null, `rank ${waiter} waits for rank ${other} in ${communicator}`),
        s("path", { class: "arrow", d: between(at.get(waiter), at.get(other)), "marker-end": "url(#arrow)" }))),
      [...at].map(([rank, [x, y]]) => s("g", { class: waiters.has(rank) ? "victim" : "culprit" },
        s("circle", { cx: x, cy: y, r: NODE }), s("text", { x, y: y + 4 }, rank)))),
    left > 0 ? `${left} more wait.` : null,
  ];
}

function onCircle(list, radius) {
  return list.map((rank, i) => {
    const angle = (i / list.length) * 2 * Math.PI - Math.PI / 2;
    return [rank, [radius * Math.cos(angle), radius * Math.sin(angle)].map(Math.round)];
  });
}

function between([x1, y1], [x2, y2]) {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
  return `M${(x1 + dx * NODE).toFixed(1)} ${(y1 + dy * NODE).toFixed(1)}L${(x2 - dx * (NODE + 1)).toFixed(1)} ${(y2 - dy * (NODE + 1)).toFixed(1)}`;
}
