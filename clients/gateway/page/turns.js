// The list of turns: by state, with their cost and age.

import { get, path, repeat } from "./api.js";
import { startTurn } from "./actions.js";
import { may } from "./caller.js";
import { fill, h, reconcile } from "./dom.js";
import { problem } from "./dialogs.js";
import { ago, duration, money, plural } from "./format.js";
import { badge, hashOf } from "./parts.js";

const STATES = [
  ["", "All"],
  ["running", "Running"],
  ["waiting", "Waiting"],
  ["paused", "Paused"],
  ["ended", "Ended"],
];
const EVERY = 4_000;
const MOST_ASKED = 20;

/** What the person has chosen; it stays while the page is open. */
const chosen = { state: "", agent: "", delegates: false, limit: 50 };

export function turns(main, signal) {
  const trouble = h("div");
  const list = h("ul.rows", { "aria-label": "Turns" });
  const below = h("p.muted.small");
  const agents = h("datalist", { id: "agents" });
  const live = new Map();
  const refresh = async () => {
    try {
      const { state, agent, limit } = chosen;
      const found = (await get("v1/turns", { state, agent, limit }, signal)).turns;
      const shown = found.filter((one) => chosen.delegates || !one.parent || chosen.agent);
      fill(trouble);
      suggest(agents, found);
      const entries = shown.map((one) => ({
        ...one,
        live: one.outcome ? null : (live.get(one.id) ?? null),
      }));
      reconcile(list, entries, (one) => one.id, row);
      fill(
        below,
        shown.length ? countOf(shown, found, limit) : "No turns. Start one, or show other states.",
        found.length === limit && limit < 200 ? [" ", more] : null,
      );
    } catch (error) {
      if (!signal.aborted) fill(trouble, problem(error));
    }
  };
  const cost = async () => {
    const open = [...list.children]
      .map((one) => JSON.parse(one.state))
      .filter((one) => !one.outcome);
    for (const one of open.slice(0, MOST_ASKED)) {
      if (signal.aborted) return;
      try {
        const { spent, steps, doing } = await get(path("turns", one.id), {}, signal);
        live.set(one.id, { usd: spent.usd, steps, doing });
      } catch {
        live.delete(one.id);
      }
    }
  };
  const more = h(
    "button.link",
    {
      type: "button",
      onclick: () => {
        chosen.limit = 200;
        refresh();
      },
    },
    "Show more",
  );
  fill(
    main,
    h(
      "div.head",
      null,
      h("h1", null, "Turns"),
      may("start")
        ? h(
            "button.primary",
            { type: "button", onclick: () => startTurn(namesOf(agents)) },
            "Start a turn",
          )
        : null,
    ),
    filters(refresh),
    agents,
    trouble,
    list,
    below,
  );
  repeat(EVERY, signal, async () => {
    await refresh();
    await cost();
    if (!signal.aborted && live.size) await refresh();
  });
}

function filters(refresh) {
  const buttons = STATES.map(([state, label]) => {
    const button = h(
      "button.chip",
      { type: "button", "aria-pressed": String(chosen.state === state) },
      label,
    );
    button.addEventListener("click", () => {
      chosen.state = state;
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
      refresh();
    });
    return button;
  });
  const agent = h("input", {
    type: "search",
    list: "agents",
    placeholder: "Any agent",
    "aria-label": "Agent",
    autocomplete: "off",
  });
  agent.value = chosen.agent;
  agent.addEventListener("change", () => {
    chosen.agent = agent.value.trim();
    refresh();
  });
  const delegates = h("input", { type: "checkbox", checked: chosen.delegates });
  delegates.addEventListener("change", () => {
    chosen.delegates = delegates.checked;
    refresh();
  });
  return h(
    "div.filters",
    { role: "group", "aria-label": "Filters" },
    h("div.chips", null, buttons),
    agent,
    h("label.check", null, delegates, " Delegates too"),
  );
}

function countOf(shown, found, limit) {
  const left = found.length - shown.length;
  return (
    plural(shown.length, "turn") +
    (left ? `, and ${plural(left, "delegate")}` : "") +
    (found.length === limit ? `; the list ends after ${limit}` : "")
  );
}

function row(entry) {
  const steps = entry.steps ?? entry.live?.steps;
  const cost = entry.outcome ? entry.spent : entry.live?.usd;
  const took = entry.ended_at
    ? ` · took ${duration((new Date(entry.ended_at) - new Date(entry.started_at)) / 1000)}`
    : "";
  const known = entry.outcome || entry.live;
  return h(
    "li",
    null,
    h(
      "a.row",
      { href: hashOf("turns", entry.id) },
      h(
        "span.first",
        null,
        badge(entry.state, entry.outcome),
        h("span.task", null, entry.task || entry.id),
      ),
      h(
        "span.numbers",
        null,
        h("span.amount", null, known ? money(cost) : "…"),
        h("span.muted", null, ago(entry.started_at)),
      ),
      h(
        "span.second.muted",
        null,
        entry.agent,
        entry.last_agent && entry.last_agent !== entry.agent ? ` → ${entry.last_agent}` : "",
        " · ",
        h("span.id", null, entry.id),
        steps === null || steps === undefined ? "" : ` · ${plural(steps, "step")}`,
        took,
        entry.waits_for ? ` · waits for ${entry.waits_for}` : "",
        entry.unsettled ? ` · ${plural(entry.unsettled, "call")} of unknown outcome` : "",
        entry.parent ? " · delegate" : "",
        Object.entries(entry.labels).map(([name, value]) => [
          " ",
          h("span.label", null, `${name}=${value}`),
        ]),
      ),
    ),
  );
}

function suggest(agents, found) {
  const names = [...new Set([...namesOf(agents), ...found.map((one) => one.agent)])]
    .filter(Boolean)
    .sort();
  if (names.join("\n") !== namesOf(agents).join("\n")) {
    fill(
      agents,
      names.map((name) => h("option", { value: name })),
    );
  }
}

function namesOf(agents) {
  return [...agents.children].map((one) => one.value);
}
