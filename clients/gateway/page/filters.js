// The filters of the list of turns, which are in the address, so that a view can be sent to others.

import { fill, h } from "./dom.js";

const STATES = [
  ["", "All"],
  ["running", "Running"],
  ["waiting", "Waiting"],
  ["paused", "Paused"],
  ["ended", "Ended"],
];
const OUTCOMES = [
  "completed",
  "failed",
  "budget_exhausted",
  "max_iterations",
  "cancelled",
  "timed_out",
  "terminated",
  "truncated",
  "boundary",
  "loop",
];
const NAMES = [
  "state",
  "outcome",
  "agent",
  "version",
  "q",
  "reason",
  "delegates",
  "schedule",
  "parent",
];

/** The filters of an address. */
export function filtersOf(query) {
  const named = new URLSearchParams(query);
  const filters = Object.fromEntries(NAMES.map((name) => [name, named.get(name) ?? ""]));
  return { ...filters, labels: named.getAll("label") };
}

/** The address of filters. */
export function addressOf({ labels, ...filters }) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) if (value) query.set(name, value);
  for (const label of labels) query.append("label", label);
  const text = query.toString();
  return `#/turns${text ? `?${text}` : ""}`;
}

/** What the gateway filters by; the rest is looked for in what it sends. */
export function asked({ state, outcome, agent, labels, schedule, parent, version }) {
  return { state, outcome, agent, label: labels, schedule, parent, version };
}

/** Whether a turn is shown. */
export function admits(entry, { q, delegates, agent, parent, reason }) {
  if (entry.parent && !delegates && !agent && !parent) return false;
  if (reason && entry.error?.code !== reason) return false;
  if (!q) return true;
  return textOf(entry).includes(q.toLowerCase());
}

const texts = new WeakMap();

/** What a turn is searched by; it is made once. */
function textOf(entry) {
  const known = texts.get(entry);
  if (known !== undefined) return known;
  const labels = Object.entries(entry.labels).map(([name, value]) => `${name}=${value}`);
  const { id, task, agent, last_agent: last, version, error } = entry;
  const text = [id, task, agent, last, version, error?.code, ...labels];
  texts.set(entry, text.join("\n").toLowerCase());
  return texts.get(entry);
}

/** The fields of the filters. `onChange` is called with the new ones; `focus` is the search. */
export function filterBar(filters, onChange) {
  const set = (changes) => {
    Object.assign(filters, changes);
    history.replaceState(null, "", addressOf(filters));
    show();
    onChange();
  };
  const buttons = STATES.map(([state, label]) =>
    h("button.chip", { type: "button", "data-state": state, onclick: () => set({ state }) }, label),
  );
  const search = h("input", {
    type: "search",
    placeholder: "Search task, id, label  ( / )",
    "aria-label": "Search",
    autocomplete: "off",
    value: filters.q,
  });
  search.addEventListener("input", () => set({ q: search.value.trim() }));
  const agent = h("input", {
    type: "search",
    list: "agents",
    placeholder: "Any agent",
    "aria-label": "Agent",
    autocomplete: "off",
    value: filters.agent,
  });
  agent.addEventListener("change", () => set({ agent: agent.value.trim() }));
  const outcome = h(
    "select",
    { "aria-label": "Outcome" },
    h("option", { value: "" }, "Any outcome"),
    OUTCOMES.map((one) =>
      h("option", { value: one, selected: one === filters.outcome }, one.replaceAll("_", " ")),
    ),
  );
  outcome.addEventListener("change", () => set({ outcome: outcome.value }));
  const delegates = h("input", { type: "checkbox", checked: Boolean(filters.delegates) });
  delegates.addEventListener("change", () => set({ delegates: delegates.checked ? "1" : "" }));
  const also = h("span.chips");
  const show = () => {
    for (const one of buttons)
      one.setAttribute("aria-pressed", String(one.dataset.state === filters.state));
    fill(also, removable(filters, set));
  };
  show();
  const element = h(
    "div.filters",
    { role: "group", "aria-label": "Filters" },
    h("div.chips", null, buttons),
    search,
    agent,
    outcome,
    h("label.check", null, delegates, " Delegates too"),
    also,
  );
  return { element, focus: () => search.focus(), set };
}

/** The filters that have no field of their own, each with a way to end it. */
function removable({ labels, reason, schedule, parent, version }, set) {
  const chip = (text, changes) =>
    h(
      "button.chip.removable",
      { type: "button", "aria-label": `Without ${text}`, onclick: () => set(changes) },
      `${text} ✕`,
    );
  return [
    ...labels.map((label) => chip(label, { labels: labels.filter((one) => one !== label) })),
    reason ? chip(reason, { reason: "" }) : null,
    schedule ? chip(`schedule ${schedule}`, { schedule: "" }) : null,
    parent ? chip(`below ${parent}`, { parent: "" }) : null,
    version ? chip(`version ${version}`, { version: "" }) : null,
  ];
}
