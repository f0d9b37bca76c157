// Few numbers beside each other: ranks, links, parts; those that are named stand out by colour and by their label.

import { h, s } from "../dom.js";

const HEIGHT = 150;
const BELOW = 34; // for labels
const ABOVE = 16;
const WIDEST = 90;
const LEAST = 7;
const WIDTH = 560;
const MOST_LABELS = 24;

// On a narrow page it is pushed, by touch or by the arrow keys: smaller letters could not be read.
// rows: [{name, value, mark}], mark: a class of style.css or nothing; words: what the value is, for its label and for ears.
export function columns({ label, rows, words }) {
  const pitch = Math.max(LEAST, Math.min(WIDEST, WIDTH / rows.length));
  const width = Math.ceil(pitch * rows.length) + 8;
  const top = Math.max(...rows.map((row) => row.value), 0);
  const bottom = Math.min(...rows.map((row) => row.value), 0);
  const y = (value) => ABOVE + ((top - value) / (top - bottom || 1)) * (HEIGHT - ABOVE - BELOW);
  const each = Math.ceil(rows.length / MOST_LABELS);
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, s("svg", { class: "columns", width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label },
    s("line", { x1: 0, x2: width, y1: y(0), y2: y(0) }),
    rows.map((row, i) => {
      const middle = 4 + pitch * (i + 0.5);
      const isNamed = Boolean(row.mark);
      return s("g", { class: row.mark ?? "ok" },
        s("title", null, `${row.name}: ${words(row.value)}`),
        s("rect", { x: 4 + pitch * i + pitch * 0.12, width: pitch * 0.76, y: Math.min(y(row.value), y(0)),
          height: Math.max(Math.abs(y(row.value) - y(0)), 1) }),
        isNamed ? s("text", { x: clamp(middle, 26, width - 26), y: Math.min(y(row.value), y(0)) - 4 }, words(row.value)) : null,
        isNamed || i % each === 0 ? s("text", { class: isNamed ? "named" : "dim", x: clamp(middle, 8, width - 8),
          y: HEIGHT - (isNamed && each > 1 ? 4 : 18) }, row.tick ?? row.name) : null);
    })));
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}
