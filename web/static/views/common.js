// What several views show alike.

import { h, table } from "../dom.js";
import { CAUSES, STATES, VERDICTS, ago, hours, percent, seconds, whole } from "../words.js";

export function badge(word, kind, title) {
  return h("span", { class: `badge ${kind}`, title }, word);
}

export function jobState(state) {
  return badge(state, `is-${state}`, STATES[state]);
}

export function incidentState(one) {
  return badge(one.state, `is-${one.state}`, one.closed_why);
}

export function verdict(word) {
  return badge(word, `says-${word}`, VERDICTS[word]);
}

export function jobLink(job, attempt, last = true) {
  return `#/job/${encodeURIComponent(job)}${last ? "" : `/${attempt}`}`;
}

export function fact(name, ...value) {
  return [h("dt", null, name), h("dd", null, value)];
}

export function facts(...list) {
  return h("dl", { class: "facts" }, list);
}

export function steps(one) {
  if (one.from_step === null) return "–";
  const end = one.to_step ?? (one.state === "open" ? "now" : "the end");
  return `${whole(one.from_step)} to ${typeof end === "number" ? whole(end) : end}`;
}

export function incidentRows(list, nowNs, withJob, isOnGpus = false) {
  return list.map((one) => h("tr", null,
    h("td", null, incidentState(one)),
    h("td", { class: "wide" }, h("a", { href: `#/incident/${one.id}`, "data-item": true }, one.what), " ", verdict(one.verdict)),
    withJob ? h("td", null, h("a", { href: jobLink(one.job, one.attempt, false) }, one.job)) : null,
    h("td", { class: "number" }, steps(one)),
    h("td", { class: "number" }, one.magnitude === null ? "–" : `${one.magnitude >= 0 ? "+" : "−"}${percent(Math.abs(one.magnitude))}`),
    h("td", { class: "number" }, one.lost_s ? hours(one.rank_hours, isOnGpus) : "–"),
    h("td", { class: "number" }, ago(one.opened_ns, nowNs))));
}

export function incidentTable(list, nowNs, { withJob = true, isOnGpus = false, caption = "Incidents" } = {}) {
  const heads = ["state", "what", withJob ? "job" : null, "steps", "longer by", "lost", "since"]
    .filter(Boolean).map((text) => (["steps", "longer by", "lost", "since"].includes(text) ? { text, class: "number" } : text));
  return table(caption, heads, incidentRows(list, nowNs, withJob, isOnGpus));
}

export function cause(code) {
  return code ? `${CAUSES[code]} (${code})` : "not known";
}

export function crumbs(...links) {
  return h("nav", { class: "crumbs", "aria-label": "Where this is" },
    links.map(([words, href], i) => [i ? " / " : "", href ? h("a", { href }, words) : h("span", { "aria-current": "page" }, words)]));
}

export function nothing(words) {
  return h("p", { class: "nothing" }, words);
}

export function marksOf(...findings) {
  const marks = new Map();
  for (const one of findings) {
    for (const rank of one.victims ?? []) if (!marks.has(rank)) marks.set(rank, "victim");
    for (const rank of one.candidates ?? []) if (!marks.has(rank) || marks.get(rank) === "victim") marks.set(rank, "suspect");
    for (const rank of one.culprits ?? []) marks.set(rank, "culprit");
    for (const link of one.links ?? []) for (const rank of link) if (marks.get(rank) !== "culprit") marks.set(rank, "suspect");
  }
  return marks;
}

export function legend(...kinds) {
  const words = { culprit: "named", suspect: "one of these", victim: "waits for it", ok: "the others", accent: "inside the call" };
  return h("p", { class: "legend" }, kinds.map((kind) => h("span", null, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), words[kind])));
}

export { seconds };
