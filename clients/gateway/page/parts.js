// Small parts that several views show: states, bars, links to turns, JSON.

import { h, words } from "./dom.js";
import { indented } from "./format.js";

const KINDS = {
  completed: "good",
  running: "busy",
  waiting: "wait",
  paused: "wait",
  truncated: "wait",
  idle: "calm",
  open: "calm",
  active: "good",
  stopped: "calm",
  skipped: "calm",
  "not started": "calm",
  closed: "calm",
  cancelled: "calm",
};

/** The state of a turn, or its outcome. */
export function badge(state, outcome = null) {
  const name = outcome ?? state;
  return h(`span.badge.${KINDS[name] ?? "bad"}`, null, name.replaceAll("_", " "));
}

export function hashOf(kind, id) {
  return `#/${kind}/${id.split("/").map(encodeURIComponent).join("/")}`;
}

export function turnLink(id, text = id) {
  return h("a.id", { href: hashOf("turns", id) }, text);
}

/** Labels, each a link to the turns that have it. */
export function labels(known) {
  return Object.entries(known).map(([name, value]) => [
    h(
      "a.label",
      { href: `#/turns?label=${encodeURIComponent(`${name}=${value}`)}` },
      `${name}=${value}`,
    ),
    " ",
  ]);
}

/** JSON, such as the arguments of a call. */
export function json(text) {
  return words(indented(text), "pre.json");
}

/** A part that is folded; its content is made when it is opened. */
export function folded(summary, content, { open = false } = {}) {
  const element = h("details", { open }, h("summary", null, summary));
  const make = () => {
    if (element.open && element.children.length === 1)
      element.append(h("div.inside", null, content()));
  };
  element.addEventListener("toggle", make);
  make();
  return element;
}
