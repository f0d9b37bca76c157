// A decision that waits for somebody's yes, and the two buttons for whoever may say it.

import { Problem, answer, get } from "../api.js";
import { h, part } from "../dom.js";
import { percent, until } from "../words.js";
import { fact, facts } from "./common.js";

const said = new Map(); // what was answered here, until the history says what became of it

export async function questions() {
  let mayAnswer = null;
  const about = part("div", null, (one) => one.waiting.map((asked) => question(asked, one.now_ns, mayAnswer)));
  return {
    node: about,
    show: async (data) => {
      if (data.waiting.length && mayAnswer === null) mayAnswer = (await get("answering")).may_answer;
      // What is left of the time is said once: buttons that are made anew each second cannot be pressed.
      const known = about.known?.waiting.map((one) => one.decision).join() === data.waiting.map((one) => one.decision).join();
      about.known = known ? about.known : { waiting: data.waiting, now_ns: data.now_ns };
      about.show(about.known);
    },
  };
}

function question(asked, nowNs, mayAnswer) {
  const key = asked.decision.slice(0, 12);
  return h("section", { class: "question", "aria-labelledby": `question-${key}` },
    h("h2", { id: `question-${key}` }, `Somebody has to say yes: ${asked.action}`),
    h("p", null, `${asked.reason[0].toUpperCase()}${asked.reason.slice(1)}.`),
    facts(
      fact("costs", `${asked.price} of the job's time; it has lost ${asked.lost} so far`),
      asked.promised_gain ? fact("gives", `iterations ${percent(asked.promised_gain)} shorter`) : null,
      asked.alternatives.length ? fact("instead", asked.alternatives.join("; ")) : null,
      fact("waits until", until(asked.until_ns, nowNs))),
    mayAnswer ? form(asked) : h("p", { class: "dim" }, "This browser may read, and not answer. On the head's host ",
      h("code", null, `pacehound approve ${key}`), " says yes, and ", h("code", null, "pacehound approve"), " tells the address for those who may answer here."));
}

function form(asked) {
  const words = h("p", { class: "said", role: "status" }, said.get(asked.decision) ?? "");
  const buttons = [["yes", "Do it", true], ["no", "Do not", false]].map(([id, text, approves]) =>
    h("button", { type: "submit", id: `${id}-${asked.decision}`, value: approves ? "yes" : "no", disabled: said.has(asked.decision) }, text));
  const name = h("input", { name: "by", maxlength: 80, autocomplete: "name" });
  return h("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      const approves = event.submitter?.value !== "no";
      for (const button of buttons) button.disabled = true;
      try {
        const { by } = await answer(asked.decision, approves, name.value);
        said.set(asked.decision, `${approves ? "Yes" : "No"} was said by ${by}. What becomes of it is said here.`);
        words.textContent = said.get(asked.decision);
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        words.textContent = problem.message;
        for (const button of buttons) button.disabled = problem.status === 410;
      }
    },
  }, h("p", { class: "tools" }, h("label", null, "Your name ", name), buttons), words);
}
