// The versions of agents in numbers: which of them fails more often, takes more steps, costs more.

import { h } from "./dom.js";
import { count, money } from "./format.js";

const STOPPED = ["cancelled", "terminated"];
const ANSWERED = ["completed", "truncated"];
const COLUMNS = ["Agent", "Turns", "Not ended", "Failed", "Stopped", "Steps", "Cost"];

/** A table of the versions of each agent that has more than one among these turns; null if none
 * has. Steps and cost are the averages of turns that have ended. */
export function versions(turns) {
  const byAgent = new Map();
  for (const turn of turns) {
    const byVersion = byAgent.get(turn.agent) ?? new Map();
    byAgent.set(turn.agent, byVersion);
    byVersion.set(turn.version, [...(byVersion.get(turn.version) ?? []), turn]);
  }
  const several = [...byAgent].filter(([, byVersion]) => byVersion.size > 1).sort(byName);
  if (!several.length) return null;
  return h(
    "table.versions",
    null,
    h("caption", null, "Versions"),
    h("thead", null, h("tr", null, COLUMNS.map((name) => h("th", { scope: "col" }, name)))),
    several.map(([agent, byVersion]) =>
      h(
        "tbody",
        null,
        [...byVersion].sort(byName).map(([version, those]) => line(agent, version, those)),
      ),
    ),
  );
}

const byName = ([one], [other]) => (one < other ? -1 : 1);

function line(agent, version, turns) {
  const ended = turns.filter((one) => one.outcome);
  const stopped = ended.filter((one) => STOPPED.includes(one.outcome)).length;
  const answered = ended.filter((one) => ANSWERED.includes(one.outcome)).length;
  const steps = average(ended.map((one) => one.steps));
  const cost = average(ended.map((one) => one.spent));
  const numbers = [
    count(turns.length),
    count(turns.length - ended.length),
    count(ended.length - answered - stopped),
    count(stopped),
    steps === null ? "–" : steps.toFixed(1),
    cost === null ? "–" : money(cost.toFixed(6)),
  ];
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, agent, " ", version || h("span.muted", null, "without a version")),
    numbers.map((number) => h("td", null, number)),
  );
}

/** The average of the values that are known; null if none is. */
function average(values) {
  const known = values.filter((value) => value !== null && value !== undefined).map(Number);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}
