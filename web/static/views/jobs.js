// All jobs: how they do, the shape of their pace, what they have lost.

import { get } from "../api.js";
import { h, part, table } from "../dom.js";
import { spark } from "../charts/spark.js";
import { ago, hours, seconds, whole } from "../words.js";
import { jobLink, jobState, nothing } from "./common.js";

const STATES = ["all", "slow", "running", "silent", "ended"];

export async function jobsView(words, query) {
  let data = await get("jobs");
  let text = query.get("search") ?? "";
  let state = STATES.includes(query.get("state")) ? query.get("state") : "all";
  const list = part("div", null, rows);
  const count = h("p", { class: "dim", role: "status" });

  function rows({ jobs, now }) {
    if (!jobs.length) {
      return nothing(data.jobs.length ? "No job is like that." : "No job has been watched yet: pacehound run -- torchrun train.py");
    }
    return table("Jobs", ["job", "state", { text: "ranks", class: "number" }, { text: "step", class: "number" },
      { text: "iteration", class: "number" }, "pace", { text: "incidents", class: "number" }, { text: "lost", class: "number" },
      { text: "heard", class: "number" }],
    jobs.map((job) => h("tr", null,
      h("td", { class: "wide" }, h("a", { href: jobLink(job.job, job.attempt, false), "data-item": true }, job.job),
        job.attempt ? h("span", { class: "dim" }, ` attempt ${job.attempt}`) : null),
      h("td", null, jobState(job.state)),
      h("td", { class: "number" }, `${whole(job.world_size)} on ${whole(job.hosts)}`),
      h("td", { class: "number" }, job.steps ? whole(job.last_step) : "–"),
      h("td", { class: "number" }, job.step_time_s ? seconds(job.step_time_s) : "–"),
      h("td", null, spark(job.spark_s)),
      h("td", { class: "number" }, job.open_incidents ? h("b", null, `${job.open_incidents} open`) : job.incidents || "–"),
      h("td", { class: "number" }, job.lost_s ? `${seconds(job.lost_s)}, ${hours(job.lost_rank_hours, job.is_on_gpus)}` : "–"),
      h("td", { class: "number" }, ago(job.last_ns, now)))));
  }

  function show() {
    const found = data.jobs.filter((job) =>
      (state === "all" || job.state === state) && job.job.toLowerCase().includes(text.toLowerCase()));
    // Whole seconds: a list of jobs that are over stays as it is.
    list.show({ jobs: found, now: data.now_ns });
    count.textContent = found.length === data.jobs.length ? `${whole(found.length)} in all` : `${whole(found.length)} of ${whole(data.jobs.length)}`;
    if (data.jobs.length >= data.most) count.textContent += `; older ones are in the history: pacehound sql`;
  }

  function address() {
    const kept = Object.entries({ search: text, state: state === "all" ? "" : state }).filter(([, value]) => value);
    history.replaceState(null, "", `#/${kept.length ? `?${new URLSearchParams(kept)}` : ""}`);
  }

  const search = h("input", { id: "search", type: "search", value: text, placeholder: "a part of its name",
    oninput: (event) => { text = event.target.value; address(); show(); } });
  const choose = h("select", { id: "state", onchange: (event) => { state = event.target.value; address(); show(); } },
    STATES.map((name) => h("option", { value: name, selected: name === state }, name)));
  show();
  return {
    title: "Jobs",
    node: [h("h1", null, "Jobs"),
      h("form", { class: "tools", onsubmit: (event) => event.preventDefault() },
        h("label", null, "Search ", search), h("label", null, "State ", choose), count), list],
    refresh: async () => { data = await get("jobs"); show(); },
  };
}
