// Routes, live updates, keys and the theme. Each view is a module of its own.

import { Problem, get, listen, showToken } from "./api.js";
import { h, replace } from "./dom.js";
import { fleetView } from "./views/fleet.js";
import { incidentView } from "./views/incident.js";
import { incidentsView } from "./views/incidents.js";
import { jobView } from "./views/job.js";
import { jobsView } from "./views/jobs.js";
import { placesView } from "./views/places.js";
import { pricesView } from "./views/prices.js";
import { roundView } from "./views/round.js";

const ROUTES = [
  [/^$/, "jobs", jobsView],
  [/^incidents$/, "incidents", incidentsView],
  [/^fleet$/, "fleet", fleetView],
  [/^job\/([^/]+)$/, "jobs", jobView],
  [/^job\/([^/]+)\/(\d+)$/, "jobs", jobView],
  [/^job\/([^/]+)\/(\d+)\/ranks$/, "jobs", placesView],
  [/^job\/([^/]+)\/(\d+)\/cost$/, "jobs", pricesView],
  [/^incident\/([^/]+)$/, "incidents", incidentView],
  [/^incident\/([^/]+)\/round\/([^/]+)\/(\d+)$/, "incidents", roundView],
];
const AGAIN_AFTER_MS = 1000;
const LATER_MS = 5000;

const main = document.getElementById("view");
let current = null; // what is shown: {refresh, leave}
let turn = 0;

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  for (const [pattern, page, view] of ROUTES) {
    const found = path.match(pattern);
    if (found) return { page, view, words: found.slice(1).map(decodeURIComponent), query: new URLSearchParams(query) };
  }
  return null;
}

async function show() {
  const mine = ++turn;
  const target = route();
  const old = current;
  current = null; // what is still on the screen is not asked for again
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === target?.page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!target) {
    old?.leave?.();
    return explain("There is no such page", `Nothing of this page is at ${location.hash}.`);
  }
  main.setAttribute("aria-busy", "true");
  try {
    const view = await target.view(target.words, target.query);
    if (mine !== turn) return view.leave?.();
    current = view;
    document.title = `${view.title} – Pacehound`;
    replace(main, view.node);
    view.shown?.();
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  } catch (problem) {
    if (mine === turn) failed(problem);
  } finally {
    old?.leave?.();
    if (mine === turn) {
      main.removeAttribute("aria-busy");
      main.dataset.shown = location.hash;
    }
  }
}

function failed(problem) {
  if (!(problem instanceof Problem)) throw problem;
  if (problem.status === 401) return askToken();
  const title = problem.status === 404 ? "Nothing is known of it" : "The page cannot say";
  explain(title, problem.message);
}

function explain(title, words) {
  document.title = `${title} – Pacehound`;
  replace(main, h("h1", null, title), h("p", null, words), h("p", null, h("a", { href: "#/" }, "All jobs")));
}

// Live: the stream says that there is something new, the view asks for what it shows.
let stream = null;
let again = 0;
let refreshing = false;

async function refresh() {
  if (refreshing || !current?.refresh) return;
  refreshing = true;
  const shown = current;
  try {
    await shown.refresh();
    liveIs("live");
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status === 401) askToken();
    else liveIs("away");
  } finally {
    refreshing = false;
  }
}

function soon(delayMs) {
  clearTimeout(again);
  again = setTimeout(refresh, delayMs);
}

function liveIs(state) {
  const words = { live: "live", away: "no answer – trying again", closed: "asking every 5 s" };
  const element = document.getElementById("live");
  element.dataset.state = state;
  if (element.textContent !== words[state]) element.textContent = words[state];
}

function follow() {
  stream?.close();
  stream = listen(() => soon(AGAIN_AFTER_MS), (state) => {
    liveIs(state);
    if (state === "closed") setTimeout(() => { refresh(); follow(); }, LATER_MS);
  });
}

// The token: from the printed address, or typed.
async function askToken() {
  const dialog = document.getElementById("token");
  if (!dialog.open) dialog.showModal();
}

document.querySelector("#token form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  try {
    await showToken(form.token.value.trim());
    form.closest("dialog").close();
    form.reset();
    await begin();
  } catch (problem) {
    form.querySelector(".error").textContent = problem.message;
  }
});

async function begin() {
  addEventListener("hashchange", show); // not before: without a session every view is refused
  follow();
  await show();
}

async function start() {
  const found = location.hash.match(/[#&?]token=([\w.~+/=-]+)/);
  if (found) {
    // Out of the address, its history, and what is copied from it.
    history.replaceState(null, "", location.pathname + (location.hash.replace(/[#&?]token=[\w.~+/=-]+/, "") || "#/"));
    try {
      await showToken(found[1]);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
    }
  }
  try {
    await get("jobs", { most: 1 });
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 401) return askToken();
  }
  await begin();
}

// Theme: the system's, until somebody chooses.
const theme = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  return (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
}

function themed() {
  theme.textContent = isDark() ? "Light" : "Dark";
  dispatchEvent(new Event("themed"));
}

function turnTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  themed();
}

const chosen = localStorage.getItem("theme");
if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
dark.addEventListener("change", themed);
theme.addEventListener("click", turnTheme);
themed();

// Keys.
const help = document.getElementById("help");
document.getElementById("keys").addEventListener("click", () => help.showModal());
let before = "";

function step(by) {
  const links = [...main.querySelectorAll("[data-item]")];
  const at = links.indexOf(document.activeElement);
  links[Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) {
    if (event.key === "Escape" && event.target.matches("input")) event.target.blur();
    return;
  }
  const typed = before + event.key;
  before = event.key === "g" ? "g" : "";
  const act = {
    gj: () => { location.hash = "#/"; },
    gi: () => { location.hash = "#/incidents"; },
    gf: () => { location.hash = "#/fleet"; },
    j: () => step(1),
    k: () => step(-1),
    u: () => { location.hash = current?.up ?? "#/"; },
    "/": () => main.querySelector("input[type=search]")?.focus(),
    t: turnTheme,
    "?": () => help.showModal(),
  }[typed] ?? (typed.length > 1 ? null : undefined);
  if (!act) return;
  event.preventDefault();
  act();
});

start();
