// Where a job's ranks are, and which communicators they form.

import { get } from "../api.js";
import { placesChart } from "../charts/places.js";
import { h, replace, table } from "../dom.js";
import { ranks, whole } from "../words.js";
import { crumbs, jobLink, legend, marksOf, nothing } from "./common.js";

const LISTED = 200;

export async function placesView([job, attempt], query) {
  const data = await get("places", { job, attempt });
  const up = jobLink(job, attempt, false);
  const marks = marksOf({ ...data.named, links: data.links });
  let chosen = query.get("communicator");
  let drawn = null;
  const picture = h("div");
  const list = h("div");

  function show() {
    drawn?.leave();
    const one = data.communicators.find((each) => each.communicator === chosen);
    drawn = placesChart({ hosts: data.hosts, marks, links: data.links, chosen: one ? new Set(one.members) : null });
    replace(picture, drawn.node);
    const shown = data.communicators.slice(0, LISTED);
    replace(list, table("Communicators", ["communicator", "backend", { text: "ranks", class: "number" }, "members"],
      shown.map((each) => h("tr", { class: each.communicator === chosen ? "chosen" : null },
        h("td", null, h("button", { type: "button", id: `c-${each.communicator}`, "data-item": true, "aria-pressed": String(each.communicator === chosen),
          onclick: () => choose(each.communicator) }, `${each.name || each.communicator.slice(0, 24)}${each.is_world ? " (all ranks)" : ""}`)),
        h("td", null, each.backend), h("td", { class: "number" }, whole(each.members.length)), h("td", { class: "wide" }, ranks(each.members))))),
    data.communicators.length > LISTED ? nothing(`… and ${whole(data.communicators.length - LISTED)} more: pacehound sql "SELECT * FROM communicators"`) : null);
  }

  function choose(communicator) {
    chosen = chosen === communicator ? null : communicator;
    history.replaceState(null, "", `${up}/ranks${chosen ? `?${new URLSearchParams({ communicator: chosen })}` : ""}`);
    show();
  }

  show();
  return {
    title: `Ranks of ${job}`,
    up,
    node: [crumbs(["Jobs", "#/"], [job, up], ["Ranks"]), h("h1", null, "Ranks and communicators"),
      data.hosts.length ? [h("section", { "aria-label": "Ranks by host" }, picture, legend("culprit", "suspect", "victim", "ok")),
        h("section", { "aria-labelledby": "groups" }, h("h2", { id: "groups" }, "Communicators"), h("p", { class: "dim" }, "Choose one to see its ranks."), list)]
        : nothing("No communicator of this job is known.")],
    leave: () => drawn?.leave(),
  };
}
