// One round over all its ranks.

import { get } from "../api.js";
import { roundChart } from "../charts/round.js";
import { h, table } from "../dom.js";
import { communicatorName, seconds, whole } from "../words.js";
import { crumbs, fact, facts, jobLink, legend, marksOf, nothing } from "./common.js";

const LISTED = 64;

export async function roundView([id, communicator, seq]) {
  const incident = await get(`incidents/${encodeURIComponent(id)}`);
  const { name, calls } = await get(`incidents/${encodeURIComponent(id)}/round`, { communicator, seq });
  const up = `#/incident/${id}`;
  const trail = crumbs(["Jobs", "#/"], [incident.job, jobLink(incident.job, incident.attempt, false)], ["Incident", up], [`Round ${seq}`]);
  const title = `Round ${whole(seq)}`;
  if (!calls.length) return { title, up, node: [trail, h("h1", null, title), nothing("No call of this round is kept.")] };
  const marks = marksOf(...incident.findings);
  const first = Math.min(...calls.map((call) => call.launch));
  const late = [...calls].sort((a, b) => b.launch - a.launch);
  const drawn = roundChart(calls, marks);
  const one = calls[0];
  return {
    title,
    up,
    node: [trail, h("h1", null, `${title}: ${one.op}`),
      facts(fact("communicator", name ? `${communicatorName({ name, communicator })} (${communicator})` : communicator), fact("elements", `${whole(one.elements)} ${one.dtype}`), fact("ranks", whole(calls.length)),
        one.algorithm ? fact("algorithm", `${one.algorithm} ${one.protocol}`) : null),
      h("section", { "aria-label": "The round over its ranks" }, drawn.node, legend("accent", "culprit", "suspect", "victim")),
      h("section", { "aria-labelledby": "late" }, h("h2", { id: "late" }, "Who came last"),
        table("Who came last", ["rank", "host", { text: "came after the first", class: "number" }, { text: "was inside for", class: "number" }],
          late.slice(0, LISTED).map((call) => h("tr", null, h("td", null, `rank ${call.rank}`), h("td", null, call.host),
            h("td", { class: "number" }, seconds((call.launch - first) / 1e9)),
            h("td", { class: "number" }, call.end > 0 ? seconds((call.end - call.launch) / 1e9) : "has not come out")))))],
    leave: drawn.leave,
  };
}
