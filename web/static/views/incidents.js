// All incidents, the newest first.

import { get } from "../api.js";
import { h, part } from "../dom.js";
import { whole } from "../words.js";
import { incidentTable, nothing } from "./common.js";

const STATES = ["all", "open", "relieved", "closed"];

export async function incidentsView(words, query) {
  let data = await get("incidents");
  let text = query.get("search") ?? "";
  let state = STATES.includes(query.get("state")) ? query.get("state") : "all";
  const list = part("div", null, ({ incidents, now }) => incidents.length
    ? incidentTable(incidents, now)
    : nothing(data.incidents.length ? "No incident is like that." : "There is no incident."));
  const count = h("p", { class: "dim", role: "status" });

  function show() {
    const found = data.incidents.filter((one) => (state === "all" || one.state === state)
      && `${one.what} ${one.job}`.toLowerCase().includes(text.toLowerCase()));
    list.show({ incidents: found, now: data.now_ns });
    count.textContent = `${whole(found.length)} of ${whole(data.incidents.length)}`;
  }

  function address() {
    const kept = Object.entries({ search: text, state: state === "all" ? "" : state }).filter(([, value]) => value);
    history.replaceState(null, "", `#/incidents${kept.length ? `?${new URLSearchParams(kept)}` : ""}`);
  }

  show();
  return {
    title: "Incidents",
    node: [h("h1", null, "Incidents"),
      h("form", { class: "tools", onsubmit: (event) => event.preventDefault() },
        h("label", null, "Search ", h("input", { id: "search", type: "search", value: text, placeholder: "who, what or which job",
          oninput: (event) => { text = event.target.value; address(); show(); } })),
        h("label", null, "State ", h("select", { id: "state", onchange: (event) => { state = event.target.value; address(); show(); } },
          STATES.map((name) => h("option", { value: name, selected: name === state }, name)))), count), list],
    refresh: async () => { data = await get("incidents"); show(); },
  };
}
