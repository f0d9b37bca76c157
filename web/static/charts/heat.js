// A map of cells: rows by columns, one colour for each value; what is under the pointer is said below it.

import { h } from "../dom.js";
import { canvas } from "./canvas.js";
import { colours, shade } from "./colours.js";

const LEFT = 64;
const BOTTOM = 22;

// values: Float32Array, rows by columns (NaN: nothing known); low, high: what the darkest and the brightest colour mean.
export function heat({ label, rows, columns, values, low, high, rowName, columnName, cellWords, marks = new Map(), cellPx = null, onCell = null }) {
  const image = picture();
  const height = Math.min(Math.max(rows * (cellPx ?? Math.max(Math.min(18, 480 / rows), 1)), 60), 640) + BOTTOM;
  const said = h("p", { class: "said", "aria-live": "polite" }, " ");

  function picture() {
    const made = document.createElement("canvas");
    made.width = columns;
    made.height = rows;
    const context = made.getContext("2d");
    const data = context.createImageData(columns, rows);
    for (let i = 0; i < rows * columns; i++) {
      if (Number.isNaN(values[i])) continue;
      const [r, g, b] = shade((values[i] - low) / (high - low || 1));
      data.data.set([r, g, b, 255], 4 * i);
    }
    context.putImageData(data, 0, 0);
    return made;
  }

  const drawn = canvas(label, height, (context, width, full) => {
    const c = colours();
    const inner = full - BOTTOM;
    context.imageSmoothingEnabled = false;
    context.fillStyle = c.line;
    context.fillRect(LEFT, 0, width - LEFT, inner);
    context.drawImage(image, LEFT, 0, width - LEFT, inner);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = c.dim;
    const every = Math.max(Math.ceil((rows * 14) / inner), 1);
    for (let row = 0; row < rows; row += every) {
      if (!marks.size || !marks.has(row)) context.fillText(rowName(row), 0, ((row + 0.5) / rows) * inner, LEFT - 12);
    }
    for (const [row, kind] of marks) {
      const y = ((row + 0.5) / rows) * inner;
      context.fillStyle = c.back;
      context.fillRect(0, y - 8, LEFT - 8, 16);
      context.fillStyle = c[kind];
      context.font = "bold 12px system-ui, sans-serif";
      context.fillText(rowName(row), 0, y, LEFT - 12);
      context.fillRect(LEFT - 6, y - Math.max(inner / rows / 2, 3), 4, Math.max(inner / rows, 6));
      context.font = "12px system-ui, sans-serif";
    }
    context.fillStyle = c.dim;
    context.textBaseline = "alphabetic";
    const names = Math.max(Math.min(columns, Math.floor((width - LEFT) / 110)), 1);
    for (let i = 0; i < names; i++) {
      const column = Math.floor((i * columns) / names);
      context.fillText(columnName(column), LEFT + (column / columns) * (width - LEFT), full - 6, 104);
    }
  });

  function cellAt(event) {
    const box = drawn.element.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT)) * columns);
    const row = Math.floor(((event.clientY - box.top) / (box.height - BOTTOM)) * rows);
    return column >= 0 && column < columns && row >= 0 && row < rows ? [row, column] : null;
  }

  drawn.element.addEventListener("pointermove", (event) => {
    const cell = cellAt(event);
    said.textContent = cell ? cellWords(cell[0], cell[1], values[cell[0] * columns + cell[1]]) : " ";
  });
  if (onCell) drawn.element.addEventListener("click", (event) => { const cell = cellAt(event); if (cell) onCell(...cell); });
  return { node: h("figure", { class: "heat" }, drawn.node, scaleOf(low, high), said), leave: drawn.leave };
}

function scaleOf(low, high) {
  const stops = canvas("colours from little to much", 10, (context, width) => {
    for (let x = 0; x < width; x++) {
      context.fillStyle = `rgb(${shade(x / width).join(",")})`;
      context.fillRect(x, 0, 1, 10);
    }
  });
  return h("div", { class: "colours", "aria-hidden": "true" },
    h("span", null, low.words ?? `${Math.round(low * 100)} %`), stops.node, h("span", null, high.words ?? `${Math.round(high * 100)} %`));
}
