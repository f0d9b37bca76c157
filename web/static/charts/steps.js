// Iteration times of a job over its steps: the median of each point, its shortest and longest as a band, with what was
// found marked in it. Closer and farther by mouse and by keys.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { h } from "../dom.js";
import { seconds, whole } from "../words.js";
import { colours } from "./colours.js";

const HEIGHT = 280;
const LEAST_STEPS = 10;

// `load(first, until)` brings the points; `marks()` what stands in the picture; `ranged(first, until)` is told what is shown.
export function stepsChart({ load, marks, ranged, limits }) {
  const place = h("div", { class: "chart", tabindex: "0", role: "group",
    "aria-label": "iteration times; plus and minus come closer and go farther, arrows move" });
  let chart = null;
  let range = null; // the steps that are shown; null: all
  let asked = 0;

  const shown = () => range ?? limits();
  const marker = {
    hooks: {
      drawClear: [(u) => spans(u)],
      draw: [(u) => lines(u)],
    },
  };

  function spans(u) {
    const { ctx, bbox } = u;
    const c = colours();
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const span of marks().spans) {
      const from = u.valToPos(span.from, "x", true);
      const to = u.valToPos(span.to ?? limits()[1], "x", true);
      ctx.globalAlpha = c.dark ? 0.28 : 0.16;
      ctx.fillStyle = c[span.colour];
      ctx.fillRect(from, bbox.top, Math.max(to - from, 2), bbox.height);
    }
    ctx.restore();
  }

  function lines(u) {
    const { ctx, bbox } = u;
    const c = colours();
    const scale = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const step of marks().changes) {
      const x = Math.round(u.valToPos(step, "x", true));
      ctx.strokeStyle = c.text;
      ctx.setLineDash([4 * scale, 3 * scale]);
      ctx.lineWidth = scale;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.setLineDash([]);
    ctx.fillStyle = c.pause;
    const pauses = u.pauses ?? [];
    u.data[0].forEach((step, i) => {
      if (!pauses[i]) return;
      const x = u.valToPos(step, "x", true);
      ctx.fillRect(x - 2 * scale, bbox.top + bbox.height - 7 * scale, 4 * scale, 7 * scale);
    });
    ctx.restore();
  }

  function options(width) {
    const c = colours();
    const axis = { stroke: c.dim, grid: { stroke: c.line, width: 1 }, ticks: { stroke: c.line, width: 1 },
      font: "12px system-ui, sans-serif" };
    return {
      width,
      height: HEIGHT,
      plugins: [marker],
      cursor: { drag: { x: true, y: false } },
      legend: { live: true },
      scales: { x: { time: false }, y: { range: (u, low, high) => [0, (high || 1) * 1.05] } },
      axes: [
        { ...axis, label: "step", labelSize: 18, labelFont: "12px system-ui, sans-serif",
          values: (u, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? whole(tick) : "")) },
        { ...axis, size: 72, values: (u, ticks) => ticks.map((tick) => seconds(tick)) },
      ],
      bands: [{ series: [3, 1], fill: c.dark ? "rgba(110,168,254,.22)" : "rgba(31,111,235,.16)" }],
      series: [
        { label: "step", value: (u, v) => (v === null ? "–" : whole(v)) },
        { label: "shortest", stroke: "transparent", value: (u, v) => seconds(v), points: { show: false } },
        { label: "median", stroke: c.accent, width: 1.5, value: (u, v) => seconds(v),
          points: { show: (u) => u.data[0].length < 60 } },
        { label: "longest", stroke: "transparent", value: (u, v) => seconds(v), points: { show: false } },
      ],
      hooks: {
        setSelect: [(u) => {
          if (u.select.width < 4) return;
          const from = u.posToVal(u.select.left, "x");
          const to = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          go(from, to);
        }],
      },
    };
  }

  function columns(points) {
    return [points.first_step, points.shortest_s, points.median_s, points.longest_s];
  }

  let last = null;
  function make() {
    if (!last) return;
    const width = place.clientWidth;
    if (!width) return;
    chart?.destroy();
    chart = new uPlot(options(width), columns(last), place);
    chart.pauses = last.pause;
  }

  async function refresh() {
    const mine = ++asked;
    const [first, until] = shown();
    const points = await load(first, until);
    if (mine !== asked) return;
    last = points;
    if (!chart) return make();
    chart.pauses = points.pause;
    chart.setData(columns(points));
  }

  async function go(from, to) {
    const [low, high] = limits();
    if (from === null) range = null;
    else {
      const first = Math.max(Math.floor(from), low);
      const until = Math.min(Math.max(Math.ceil(to), first + LEAST_STEPS), high);
      range = first <= low && until >= high ? null : [first, until];
    }
    ranged(...(range ?? [null, null]));
    await refresh();
  }

  function turn(closer, shift) {
    const [first, until] = shown();
    const middle = (first + until) / 2 + shift * (until - first) * 0.25;
    const half = ((until - first) / 2) * closer;
    go(Math.max(middle - half, limits()[0]), middle + half);
  }

  place.addEventListener("keydown", (event) => {
    const act = { "+": () => turn(0.5, 0), "=": () => turn(0.5, 0), "-": () => turn(2, 0), ArrowLeft: () => turn(1, -1),
      ArrowRight: () => turn(1, 1), 0: () => go(null) }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  place.addEventListener("dblclick", () => go(null));
  const watcher = new ResizeObserver(() => {
    if (!chart) make();
    else if (chart.width !== place.clientWidth && place.clientWidth) chart.setSize({ width: place.clientWidth, height: HEIGHT });
  });
  watcher.observe(place);
  addEventListener("themed", make);

  const button = (words, act) => h("button", { type: "button", onclick: act }, words);
  const buttons = h("div", { class: "tools" },
    button("Closer", () => turn(0.5, 0)), button("Farther", () => turn(2, 0)),
    button("Earlier", () => turn(1, -1)), button("Later", () => turn(1, 1)), button("All", () => go(null)));

  return {
    node: h("div", null, place, buttons),
    refresh,
    show: (first, until) => { range = first === null ? null : [first, until]; return refresh(); },
    redraw: () => chart?.redraw(),
    leave: () => { chart?.destroy(); watcher.disconnect(); removeEventListener("themed", make); },
  };
}
