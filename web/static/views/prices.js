// What stragglers cost a job (the what-if analysis): by worker, and what would mend it.

import { get } from "../api.js";
import { heat } from "../charts/heat.js";
import { h, replace, table } from "../dom.js";
import { percent, ranks, seconds, whole } from "../words.js";
import { crumbs, fact, facts, jobLink, nothing } from "./common.js";

const LISTED = 12;

export async function pricesView([job, attempt], query) {
  const { windows } = await get("prices", { job, attempt });
  const up = jobLink(job, attempt, false);
  const trail = crumbs(["Jobs", "#/"], [job, up], ["What stragglers cost"]);
  const title = "What stragglers cost";
  if (!windows.length) {
    return { title, up, node: [trail, h("h1", null, title),
      nothing("Nothing is known: operations of this job are not recorded (pacehound run --operations).")] };
  }
  let at = Math.min(Number(query.get("window") ?? windows.length - 1), windows.length - 1);
  const body = h("div");
  let leaves = [];

  function show() {
    leaves.forEach((leave) => leave());
    leaves = [];
    const one = windows[at];
    const workers = one.fixes.filter((fix) => fix.dp !== undefined);
    const best = [...one.fixes].sort((a, b) => b.gain - a.gain).slice(0, LISTED);
    const bySteps = h("div");
    showSteps(one, bySteps);
    replace(body,
      facts(fact("steps", `${whole(one.first_step)} to ${whole(one.last_step)} (${one.n_steps} recorded)`),
        fact("a step takes", `${seconds(one.recorded_s)}; without stragglers ${seconds(one.ideal_s)}`),
        fact("lost by stragglers", `${percent(one.waste)} of the job's time (${one.slowdown.toFixed(2)} times as long)`),
        one.patterns.length ? fact("pattern", one.patterns.join(", ")) : null),
      workers.length ? h("section", { "aria-labelledby": "by-worker" }, h("h2", { id: "by-worker" }, "By worker"), workerMap(workers)) : null,
      bySteps,
      h("section", { "aria-labelledby": "mend" }, h("h2", { id: "mend" }, "What would mend it"),
        best.length ? table("What would mend it", ["if this were as the others are", "ranks", { text: "gives back", class: "number" }],
          best.map((fix) => h("tr", null, h("td", null, `${fix.what} ${fix.name}`), h("td", null, fix.ranks.length ? ranks(fix.ranks) : "all"),
            h("td", { class: "number" }, percent(fix.gain))))) : nothing("No single worker, stage or operation explains it.")));
  }

  async function showSteps(one, place) {
    const { steps, ranks: of, longer } = await get("straggling", { job, attempt, first: one.first_step, until: one.last_step });
    if (!steps.length || !body.contains(place)) return;
    const values = Float32Array.from(longer, (value) => value ?? NaN);
    const drawn = heat({
      label: "how much longer than the median of its stage each rank computed, ranks by recorded steps",
      rows: of.length, columns: steps.length, values, low: 0, high: Math.max(longer.reduce((most, value) => Math.max(most, value ?? 0), 0), 0.1),
      rowName: (row) => `rank ${of[row]}`, columnName: (column) => `step ${whole(steps[column])}`,
      cellWords: (row, column, value) => `rank ${of[row]}, step ${whole(steps[column])}: ` + (Number.isNaN(value) ? "not recorded"
        : value < 0 ? `computed ${percent(-value)} less than its stage` : `computed ${percent(value)} longer than its stage`),
    });
    leaves.push(drawn.leave);
    replace(place, h("section", { "aria-labelledby": "by-step" }, h("h2", { id: "by-step" }, "By step"),
      h("p", null, "A rank that is slow in every step has a slow device or a larger part of the model; one that changes from step to step has other data."),
      drawn.node));
  }

  function workerMap(workers) {
    const stages = Math.max(...workers.map((fix) => fix.stage)) + 1;
    const groups = Math.max(...workers.map((fix) => fix.dp)) + 1;
    const values = new Float32Array(stages * groups).fill(NaN);
    for (const fix of workers) values[fix.stage * groups + fix.dp] = fix.gain;
    const drawn = heat({
      label: "what each worker as the others are would give back, pipeline stages by data-parallel ranks",
      rows: stages, columns: groups, values, low: 0, high: Math.max(...workers.map((fix) => fix.gain), 0.01), cellPx: 28,
      rowName: (row) => `stage ${row}`, columnName: (column) => `dp ${column}`,
      cellWords: (row, column, value) => `dp ${column}, stage ${row}: ` + (Number.isNaN(value) ? "not priced" : `gives back ${percent(value)}`),
    });
    leaves.push(drawn.leave);
    return drawn.node;
  }

  show();
  const choose = h("select", { id: "window", onchange: (event) => {
    at = Number(event.target.value);
    history.replaceState(null, "", `${up}/cost?window=${at}`);
    show();
  } }, windows.map((one, i) => h("option", { value: i, selected: i === at }, `steps ${whole(one.first_step)} to ${whole(one.last_step)}: ${percent(one.waste)} lost`)));
  return { title, up, node: [trail, h("h1", null, title), h("form", { class: "tools" }, h("label", null, "Window ", choose)), body],
    leave: () => leaves.forEach((leave) => leave()) };
}
