// All jobs together: what was lost to what, and hosts that come back.

import { get } from "../api.js";
import { h, part, s, table } from "../dom.js";
import { ago, ranks, whole } from "../words.js";
import { cause, nothing } from "./common.js";

const WIDTH = 900;
const HEIGHT = 220;
const ORDER = ["S1", "S2", "S3", "H1", "H2", "H3", "not named"];

export async function fleetView() {
  let data = await get("fleet");
  const lost = part("section", { "aria-labelledby": "lost" }, ({ losses }) => [
    h("h2", { id: "lost" }, "Rank-hours lost, by week and cause"),
    losses.length ? [bars(losses), causes(losses)] : nothing("Nothing was lost that was noticed."),
  ]);
  const hosts = part("section", { "aria-labelledby": "hosts" }, ({ hosts: list, now }) => [
    h("h2", { id: "hosts" }, "Hosts that were named"),
    list.length ? table("Hosts that were named", ["host", { text: "findings", class: "number" }, { text: "jobs", class: "number" }, "causes", "ranks", { text: "last", class: "number" }],
      list.map((host) => h("tr", null, h("td", { class: "wide" }, host.host || "not known"), h("td", { class: "number" }, whole(host.findings)),
        h("td", { class: "number" }, whole(host.jobs)), h("td", null, host.causes.join(", ")), h("td", null, ranks(host.ranks)),
        h("td", { class: "number" }, ago(host.last_ns, now))))) : nothing("No host was named so far."),
  ]);
  const show = () => {
    lost.show({ losses: data.losses });
    hosts.show({ hosts: data.hosts, now: data.now_ns });
  };
  show();
  return { title: "Fleet", node: [h("h1", null, "Fleet"), lost, hosts], refresh: async () => { data = await get("fleet"); show(); } };
}

function weeksOf(losses) {
  return [...new Set(losses.map((loss) => loss.week))].sort();
}

function bars(losses) {
  const weeks = weeksOf(losses);
  const total = (week) => losses.filter((loss) => loss.week === week).reduce((sum, loss) => sum + loss.rank_hours, 0);
  const top = Math.max(...weeks.map(total), 1e-9);
  const width = Math.min((WIDTH - 20) / weeks.length, 90);
  return s("svg", { class: "bars", viewBox: `0 0 ${WIDTH} ${HEIGHT + 24}`, role: "img",
    "aria-label": weeks.map((week) => `week of ${week}: ${total(week).toPrecision(2)} rank-hours`).join("; ") },
  weeks.map((week, i) => {
    let y = HEIGHT;
    return [ORDER.map((name) => {
      const hours = losses.filter((loss) => loss.week === week && loss.cause === name).reduce((sum, loss) => sum + loss.rank_hours, 0);
      const size = (hours / top) * (HEIGHT - 10);
      y -= size;
      return size > 0.2 ? s("rect", { class: `cause-${name.replace(" ", "-")}`, x: 10 + i * width, y, width: width - 6, height: size },
        s("title", null, `${week}, ${name}: ${hours.toPrecision(3)} rank-hours`)) : null;
    }), i % Math.ceil(weeks.length / 9) === 0 ? s("text", { x: 10 + i * width, y: HEIGHT + 18 }, week) : null];
  }));
}

function causes(losses) {
  const known = ORDER.filter((name) => losses.some((loss) => loss.cause === name));
  return table("Lost by cause", ["colour", "cause", { text: "incidents", class: "number" }, { text: "rank-hours", class: "number" }],
    known.map((name) => {
      const these = losses.filter((loss) => loss.cause === name);
      const sum = (field) => these.reduce((all, loss) => all + Number(loss[field]), 0);
      return h("tr", null, h("td", null, h("i", { class: `swatch cause-${name.replace(" ", "-")}`, "aria-hidden": "true" })),
        h("td", { class: "wide" }, name === "not named" ? "nobody could be named" : cause(name)),
        h("td", { class: "number" }, whole(sum("incidents"))), h("td", { class: "number" }, sum("rank_hours").toPrecision(3)));
    }));
}
