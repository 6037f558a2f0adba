// What the lists of sessions, batches and schedules have in common.

import { get, repeat } from "./api.js";
import { fill, h, reconcile } from "./dom.js";
import { problem } from "./dialogs.js";

const EVERY = 5_000;
const PAGE = 100;

/**
 * A list that is read again and again. `field` is its name in the answer of the gateway,
 * `row(entry)` makes an element, and `extra(entries)` may be called to read more of them.
 */
export function resourceList(
  main,
  signal,
  { title, where, field, row, action = null, none, extra },
) {
  const trouble = h("div");
  const list = h("ul.rows", { "aria-label": title });
  const below = h("p.muted.small");
  let limit = PAGE;
  const more = h(
    "button.link",
    { type: "button", onclick: () => ((limit = 200), refresh()) },
    "Show more",
  );
  fill(main, h("div.head", null, h("h1", null, title), action), trouble, list, below);
  const show = (entries) => reconcile(list, entries, (one) => one.id, row);
  const refresh = async () => {
    try {
      const answer = await get(where, { limit }, signal);
      const entries = answer[field];
      fill(trouble);
      show(extra ? entries.map(extra.with) : entries);
      fill(below, entries.length ? "" : none, answer.next && limit === PAGE ? more : null);
      if (extra && (await extra.read(entries))) show(entries.map(extra.with));
    } catch (error) {
      if (!signal.aborted) fill(trouble, problem(error));
    }
  };
  repeat(EVERY, signal, refresh);
}

/** A row: what it is, with its numbers, and a second line. */
export function resourceRow({ mark, link, numbers, second }) {
  return h(
    "li.row",
    null,
    h("span.first", null, mark, link),
    h("span.numbers", null, numbers),
    h("span.second.muted", null, second),
  );
}

/** The head of the view of one resource. */
export function crumbsTo(kind, title, id) {
  return h("p.crumbs", null, h("a", { href: `#/${kind}` }, title), " / ", h("span.id", null, id));
}

/** The name of a batch or a schedule, with a button for each of the actions that are offered. */
export function resourceHead(id, offered, onDone) {
  const buttons = offered
    .filter(([is]) => is)
    .map(([, label, act]) =>
      h(
        label === "Cancel" ? "button.danger" : "button",
        { type: "button", onclick: async () => (await act()) && onDone() },
        label,
      ),
    );
  return h(
    "div.head",
    null,
    h("h1", null, id),
    h("div.buttons.actions", { role: "group", "aria-label": "Actions" }, buttons),
  );
}
