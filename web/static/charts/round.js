// One round of a communicator over all its ranks: when each came, and until when it was inside.

import { h } from "../dom.js";
import { seconds } from "../words.js";
import { canvas } from "./canvas.js";
import { colours } from "./colours.js";

const LEFT = 72;
const BOTTOM = 22;

// calls: [{rank, host, launch, start, end}], ns; marks: rank -> colour
export function roundChart(calls, marks) {
  const first = Math.min(...calls.map((call) => call.launch));
  const last = Math.max(...calls.map((call) => Math.max(call.end, call.launch)));
  const span = Math.max(last - first, 1);
  const rowPx = Math.max(Math.min(18, 720 / calls.length), 1);
  const said = h("p", { class: "said", "aria-live": "polite" }, " ");
  const drawn = canvas(`a round of ${calls.length} ranks over ${seconds(span / 1e9)}`, calls.length * rowPx + BOTTOM,
    (context, width, full) => {
      const c = colours();
      const inner = full - BOTTOM;
      const x = (time) => LEFT + ((time - first) / span) * (width - LEFT - 8);
      context.font = "12px system-ui, sans-serif";
      context.textBaseline = "middle";
      const every = Math.max(Math.ceil(14 / rowPx), 1);
      calls.forEach((call, row) => {
        const top = row * rowPx;
        const colour = marks.get(call.rank);
        const end = call.end > 0 ? call.end : last;
        context.fillStyle = c[colour ?? "accent"];
        context.globalAlpha = call.end > 0 ? 0.85 : 0.35; // has not ended: paler, to the end of the picture
        context.fillRect(x(call.launch), top + rowPx * 0.15, Math.max(x(end) - x(call.launch), 1), Math.max(rowPx * 0.7, 1));
        context.globalAlpha = 1;
        if (row % every === 0 || colour) {
          context.fillStyle = colour ? c[colour] : c.dim;
          context.fillText(`rank ${call.rank}`, 0, top + rowPx / 2, LEFT - 8);
        }
      });
      context.fillStyle = c.dim;
      context.textBaseline = "alphabetic";
      const ticks = Math.max(Math.floor((width - LEFT) / 120), 1);
      for (let i = 0; i <= ticks; i++) {
        const time = first + (span * i) / ticks;
        context.textAlign = i === ticks ? "right" : "left";
        context.fillText(`+${seconds((time - first) / 1e9)}`, x(time), full - 6);
        context.fillStyle = c.line;
        context.fillRect(x(time), 0, 1, inner);
        context.fillStyle = c.dim;
      }
      context.textAlign = "left";
    });
  drawn.element.addEventListener("pointermove", (event) => {
    const box = drawn.element.getBoundingClientRect();
    const call = calls[Math.floor((event.clientY - box.top) / rowPx)];
    if (!call) return;
    const inside = call.end > 0 ? `inside for ${seconds((call.end - call.launch) / 1e9)}` : "has not come out";
    said.textContent = `rank ${call.rank} on ${call.host}: came ${seconds((call.launch - first) / 1e9)} after the first, ${inside}`;
  });
  return { node: h("figure", null, drawn.node, said), leave: drawn.leave };
}
