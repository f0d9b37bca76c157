// One incident: what, who, since when, what it costs, how it is known, what was done.

import { cells, get } from "../api.js";
import { heat } from "../charts/heat.js";
import { stepsChart } from "../charts/steps.js";
import { h, part, table } from "../dom.js";
import { VERDICTS, ago, communicatorName, moment, percent, ranks, seconds, whole } from "../words.js";
import { cause, crumbs, fact, facts, incidentState, jobLink, legend, marksOf, nothing, verdict } from "./common.js";
import { evidence } from "./evidence.js";
import { questions } from "./question.js";

const MARGIN = 0.6; // of the incident's own steps, shown before and after it
const LEAST_MARGIN = 40;

export async function incidentView([id]) {
  let data = await get(`incidents/${encodeURIComponent(id)}`);
  const [job, { rounds }] = await Promise.all([get("job", { job: data.job, attempt: data.attempt }),
    get(`incidents/${encodeURIComponent(id)}/rounds`)]);
  const shares = rounds.length ? await cells(`incidents/${encodeURIComponent(id)}/shares`) : null;
  const leaves = [];

  const about = part("section", { "aria-label": "The incident" }, (one) => [
    h("h1", null, one.what, " ", incidentState(one), " ", verdict(one.verdict)),
    h("p", { class: "lead" }, `${one.verdict}: ${VERDICTS[one.verdict]}. Cause: ${cause(one.cause)}.`),
    facts(
      fact("job", h("a", { href: jobLink(one.job, one.attempt, false) }, one.job), one.attempt ? ` attempt ${one.attempt}` : ""),
      fact("since", `${moment(one.opened_ns)} (${ago(one.opened_ns, one.now_ns)})`),
      one.state === "closed" ? fact("until", `${moment(one.closed_ns)}: ${one.closed_why}`) : null,
      one.cost ? fact("cost", one.cost) : null,
      one.decisions.map((decision) => fact(decision.taken ? "did" : "would do", decision.words)),
      one.asked.length ? fact("asked", one.asked.map(asking).join("; ")) : null,
      one.told.length ? fact("told", one.told.map((told) => `${told.state} ${moment(told.sent_ns)}`).join("; ")) : null),
  ]);

  const known = part("section", { "aria-labelledby": "known" }, (one) => [
    h("h2", { id: "known" }, "How it is known"),
    one.findings.map((finding) => h("article", { class: "finding" },
      h("h3", null, finding.what, " ", verdict(finding.verdict)),
      facts(
        finding.onset ? fact("since", at(finding.onset), finding.detected?.step != null ? ` (noticed at step ${whole(finding.detected.step)})` : "") : null,
        finding.relief ? fact("until", at(finding.relief)) : null,
        finding.magnitude != null ? fact("how much", `an iteration takes ${percent(Math.abs(finding.magnitude))} ${finding.magnitude >= 0 ? "longer" : "less long"}`) : null,
        finding.candidates?.length ? fact("one of", ranks(finding.candidates)) : null,
        finding.victims?.length ? fact("waiting", ranks(finding.victims)) : null),
      finding.evidence?.length ? evidence(finding.evidence) : null,
      finding.unseen?.length ? [h("h4", null, "What could not be seen"), h("ul", { class: "unseen" }, finding.unseen.map((words) => h("li", null, words)))] : null)),
  ]);

  const stacks = part("div", null, (one) => one.stacks.length ? h("section", { "aria-labelledby": "stacks" },
    h("h2", { id: "stacks" }, "What its processes did"),
    one.stacks.map((stack) => h("details", null,
      h("summary", null, stack.rank >= 0 ? `rank ${stack.rank} on ${stack.host}` : stack.host,
        stack.doing ? `: ${stack.doing}` : "", h("span", { class: "dim" }, ` ${moment(stack.time_ns)}`)),
      h("p", { class: "dim" }, stack.reason),
      stack.frames.length ? h("pre", { tabindex: "0" }, stack.frames.join("\n")) : null,
      stack.kernel_log.length ? h("pre", { tabindex: "0" }, stack.kernel_log.join("\n")) : null)),
  ) : []);

  const past = part("section", { "aria-labelledby": "past" }, (one) => [
    h("h2", { id: "past" }, "What was said of it"),
    h("ol", { class: "past" }, one.history.map((said) => h("li", null,
      h("time", null, moment(said.time_ns)), ` ${said.state}${said.why ? ` (${said.why})` : ""}: ${said.what}`))),
  ]);

  // The job around it.
  const span = () => {
    const first = data.from_step ?? job.first_step;
    const last = data.to_step ?? Math.max(job.last_step, first + 1);
    const margin = Math.max(Math.round((last - first) * MARGIN), LEAST_MARGIN);
    return [Math.max(first - margin, job.first_step), Math.min(last + margin, job.last_step + 1)];
  };
  const chart = data.from_step === null || !job.steps ? null : stepsChart({
    limits: () => [job.first_step, job.last_step + 1],
    load: (first, until) => get("steps", { job: data.job, attempt: data.attempt, first, until }),
    marks: () => ({ spans: [{ from: data.from_step, to: data.to_step, colour: "culprit" }],
      changes: job.changes.map((change) => change.at_step).filter((step) => step !== null) }),
    ranged: () => {},
  });
  if (chart) leaves.push(chart.leave);

  const marks = marksOf(...data.findings);
  let map = nothing("No calls are kept for this incident.");
  if (shares) {
    const rows = new Map(shares.ranks.map((rank, row) => [rank, row]));
    const marked = new Map([...marks].filter(([rank, kind]) => kind !== "victim" && rows.has(rank)).map(([rank, kind]) => [rows.get(rank), kind]));
    const drawn = heat({
      label: "for each rank, the share of its time that it spent in collective calls, over time",
      rows: shares.ranks.length, columns: shares.slices, values: shares.values, low: 0, high: 1, marks: marked,
      rowName: (row) => `rank ${shares.ranks[row]}`,
      columnName: (column) => new Date((shares.from_ns + column * shares.slice_ns) / 1e6).toISOString().slice(11, 19),
      cellWords: (row, column, value) => `rank ${shares.ranks[row]}, ${new Date((shares.from_ns + column * shares.slice_ns) / 1e6).toISOString().slice(11, 23)}: `
        + (Number.isNaN(value) ? "no call" : `${percent(value)} of its time in collective calls`),
    });
    leaves.push(drawn.leave);
    map = [h("p", null, "The share of its time that each rank spent in collective calls. Whoever the others wait for spends least: they wait inside, for it."), drawn.node];
  }
  const longest = rounds.slice(0, 20);

  const asked = await questions();

  about.show(data);
  await asked.show(data);
  known.show(data);
  stacks.show(data);
  past.show(data);
  return {
    title: data.what,
    up: jobLink(data.job, data.attempt, false),
    node: [crumbs(["Jobs", "#/"], [data.job, jobLink(data.job, data.attempt, false)], ["Incident"]), about, asked.node,
      chart ? h("section", { "aria-label": "The job's iteration times around it" }, chart.node) : null, known,
      h("section", { "aria-labelledby": "map" }, h("h2", { id: "map" }, "Who waited"), map, shares ? legend("culprit", "suspect") : null),
      longest.length ? h("section", { "aria-labelledby": "rounds" }, h("h2", { id: "rounds" }, "Longest rounds"),
        table("Longest rounds", ["round", "operation", { text: "took", class: "number" }, { text: "ranks came apart by", class: "number" }, "last to come"],
          longest.map((round) => h("tr", null,
            h("td", null, h("a", { "data-item": true, href: `#/incident/${id}/round/${encodeURIComponent(round.communicator)}/${round.seq}` }, `${whole(round.seq)} of ${communicatorName(round)}`)),
            h("td", null, round.op), h("td", { class: "number" }, round.took_s > 0 ? seconds(round.took_s) : "not ended"),
            h("td", { class: "number" }, seconds(round.apart_s)), h("td", null, `rank ${round.last_rank}`))))) : null,
      stacks, past],
    shown: () => chart?.show(...span()),
    refresh: async () => {
      data = await get(`incidents/${encodeURIComponent(id)}`);
      about.show({ ...data, now_ns: data.state === "closed" ? data.closed_ns : data.now_ns });
      await asked.show(data);
      known.show(data.findings.length ? { findings: data.findings } : data);
      stacks.show(data);
      past.show(data);
    },
    leave: () => leaves.forEach((leave) => leave()),
  };
}

function asking(one) {
  const words = { told: one.sink, refused: `${one.sink} did not take it`, answered: `${one.by} has answered`, over: "it is not waited for any more" };
  return `${words[one.outcome]} ${moment(one.time_ns)}`;
}

function at(instant) {
  const time = instant.time_ns ? moment(instant.time_ns) : "";
  return instant.step === null || instant.step === undefined ? time : `step ${whole(instant.step)}${time ? `, ${time}` : ""}`;
}
