// Keys that hold on all views, and a list of them.

import { h } from "./dom.js";
import { show } from "./dialogs.js";

const PLACES = { t: "turns", i: "inbox", s: "sessions", b: "batches", c: "schedules", a: "audit" };
const KEYS = [
  ["?", "These keys"],
  ["/", "Search the list, or find in the turn"],
  ["g, then t, i, s, b, c or a", "Go to turns, inbox, sessions, batches, schedules or audit"],
  ["j, k or ↓, ↑", "The next or the previous row of a trace or call of the inbox"],
  ["→, ←", "Open or close a row of a trace"],
  ["Esc", "From the details of a row back to the turn"],
  ["a, d, e", "In the inbox: go to Approve, to Deny, edit the arguments"],
  ["x", "In the inbox: choose the call, to decide several at once"],
];
let isGoing = false;

/** Act on a key, unless it is meant for a field or a dialog. */
export function shortcuts(event, view) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, textarea, select, dialog, perdure-chat")) return;
  if (act(event, view)) event.preventDefault();
}

function act(event, view) {
  const wasGoing = isGoing;
  isGoing = false;
  if (wasGoing && PLACES[event.key]) {
    location.hash = `#/${PLACES[event.key]}`;
    return true;
  }
  switch (event.key) {
    case "g":
      isGoing = true;
      return true;
    case "?":
      help();
      return true;
    case "/":
      view?.find?.();
      return Boolean(view?.find);
    case "Escape":
      view?.back?.();
      return false;
    default:
      return view?.key?.(event) ?? false;
  }
}

function help() {
  show(
    "Keys",
    h(
      "dl.keys",
      null,
      KEYS.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)]),
    ),
  );
}
