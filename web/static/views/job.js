// One job: the line of its iteration times with what was found in it, and its incidents.

import { get } from "../api.js";
import { stepsChart } from "../charts/steps.js";
import { h, part } from "../dom.js";
import { ago, hours, moment, seconds, whole } from "../words.js";
import { crumbs, fact, facts, incidentTable, jobLink, jobState, nothing } from "./common.js";

const COLOURS = { culprit: "culprit", suspected: "suspect", unknown: "victim" };

export async function jobView([name, attempt = null], query) {
  let data = await get("job", { job: name, attempt });
  const here = () => ({ job: name, attempt: data.attempt });
  const limits = () => [data.first_step, Math.max(data.last_step + 1, data.first_step + 1)];
  const chart = stepsChart({
    limits,
    load: (first, until) => get("steps", { ...here(), first, until }),
    marks: () => ({
      spans: data.listed_incidents.filter((one) => one.from_step !== null)
        .map((one) => ({ from: one.from_step, to: one.to_step, colour: COLOURS[one.verdict] })),
      changes: data.changes.map((change) => change.at_step).filter((step) => step !== null),
    }),
    ranged: (first, until) => {
      const kept = first === null ? "" : `?${new URLSearchParams({ first, until })}`;
      history.replaceState(null, "", `${jobLink(name, data.attempt, attempt === null)}${kept}`);
    },
  });

  const about = part("section", { "aria-label": "The job" }, (one) => [
    h("h1", null, name, " ", jobState(one.state)),
    facts(
      fact("ranks", `${whole(one.world_size)} on ${whole(one.hosts)} ${one.hosts === 1 ? "host" : "hosts"}`),
      fact("steps", one.steps ? `${whole(one.first_step)} to ${whole(one.last_step)}` : "none seen"),
      fact("iteration", one.step_time_s ? `${seconds(one.step_time_s)} (median)` : "–"),
      fact("lost", one.lost_s ? `${seconds(one.lost_s)} = ${hours(one.lost_rank_hours, one.is_on_gpus)}` : "nothing that was noticed"),
      fact("watched", `from ${moment(one.first_ns)}, last heard ${one.state === "ended" ? moment(one.last_ns) : ago(one.last_ns, one.now_ns)}`),
      one.attempts.length > 1 ? fact("attempt", one.attempts.map((number) =>
        [number === one.attempt ? h("b", null, String(number)) : h("a", { href: jobLink(name, number, false) }, String(number)), " "])) : null),
    h("p", { class: "links" },
      h("a", { href: `${jobLink(name, one.attempt, false)}/ranks` }, "Ranks and communicators"), " · ",
      h("a", { href: `${jobLink(name, one.attempt, false)}/cost` }, "What stragglers cost")),
  ]);
  const found = part("section", { "aria-labelledby": "found" }, (one) => [
    h("h2", { id: "found" }, "Incidents"),
    one.listed_incidents.length
      ? incidentTable(one.listed_incidents, one.now_ns, { withJob: false, isOnGpus: one.is_on_gpus })
      : nothing("Nothing was found."),
  ]);
  const line = part("p", { class: "legend" }, (one) => [
    h("span", null, h("i", { class: "swatch accent" }), "iteration time, with shortest and longest"),
    one.listed_incidents.length ? h("span", null, h("i", { class: "swatch culprit" }), "an incident") : null,
    one.changes.length ? h("span", null, h("i", { class: "swatch dashes" }), "the level changed") : null,
    h("span", null, h("i", { class: "swatch pause" }), "a planned pause")]);

  function show() {
    about.show(data);
    found.show(data);
    line.show(data);
  }
  show();
  const first = query.get("first");
  const picture = h("section", { "aria-label": "Iteration times" },
    data.steps ? [chart.node, line] : nothing("No iteration has been seen: a job is followed from its second one on."));
  return {
    title: name,
    up: "#/",
    node: [crumbs(["Jobs", "#/"], [name]), about, picture, found],
    shown: () => data.steps && (first === null ? chart.refresh() : chart.show(Number(first), Number(query.get("until")))),
    refresh: async () => {
      const before = JSON.stringify([data.last_step, data.changes, data.listed_incidents]);
      const none = !data.steps;
      data = await get("job", { job: name, attempt });
      show();
      if (JSON.stringify([data.last_step, data.changes, data.listed_incidents]) === before) return;
      if (none && data.steps) picture.replaceChildren(chart.node, line);
      await chart.refresh();
    },
    leave: chart.leave,
  };
}
