// The shape of a series in a line of a table.

import { s } from "../dom.js";
import { seconds } from "../words.js";

const WIDTH = 120;
const HEIGHT = 24;

export function spark(points) {
  if (points.length < 2) return s("svg", { width: WIDTH, height: HEIGHT, "aria-hidden": "true" });
  const top = Math.max(...points);
  const bottom = Math.min(...points);
  // From zero where the series moves little: a change of 1 % is no cliff.
  const floor = bottom > 0.8 * top ? 0.8 * top : bottom;
  const x = (i) => (i / (points.length - 1)) * (WIDTH - 2) + 1;
  const y = (value) => HEIGHT - 2 - ((value - floor) / (top - floor || 1)) * (HEIGHT - 4);
  const path = points.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return s("svg", { class: "spark", width: WIDTH, height: HEIGHT, role: "img",
    "aria-label": `an iteration took ${seconds(bottom)} to ${seconds(top)}` }, s("path", { d: path }));
}
