// Small parts that several views show: states, bars, links to turns, JSON.

import { h, words } from "./dom.js";
import { count, duration, indented, money, plural, seconds } from "./format.js";

const KINDS = {
  completed: "good",
  running: "busy",
  waiting: "wait",
  paused: "wait",
  truncated: "wait",
  idle: "calm",
  open: "calm",
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

/** What is spent of a limit, as a bar with words. */
function bar(label, spent, limit, text) {
  const part = limit ? Math.min(1, spent / limit) : 0;
  const inner = h("span.filled");
  inner.style.width = `${(part * 100).toFixed(1)}%`;
  const level = part >= 1 ? "full" : part >= 0.8 ? "high" : "low";
  return h(
    "div.spending",
    null,
    h("div.line", null, h("span", null, label), h("span.amount", null, text)),
    limit
      ? h(
          `div.bar.${level}`,
          {
            role: "meter",
            "aria-label": label,
            "aria-valuemin": 0,
            "aria-valuemax": limit,
            "aria-valuenow": Math.min(spent, limit),
            "aria-valuetext": text,
          },
          inner,
        )
      : null,
  );
}

/** The spending of a turn against its budget, a bar for each limit. */
export function bars(status) {
  const { spent, budget, steps = 0, max_iterations: most = null } = status;
  const limits = budget ?? {};
  const of = (text, limit) => (limit ? `${text} of ${limit}` : `${text}, no limit`);
  const rows = [
    bar(
      "Cost",
      Number(spent.usd ?? 0),
      Number(limits.usd ?? 0),
      of(money(spent.usd), limits.usd && money(limits.usd)),
    ),
    bar("Steps", steps, most, of(count(steps), most && count(most))),
    bar(
      "Tokens",
      spent.tokens,
      limits.tokens,
      of(count(spent.tokens), limits.tokens && count(limits.tokens)),
    ),
    bar(
      "Time",
      seconds(spent.time),
      seconds(limits.time),
      of(duration(seconds(spent.time)), limits.time && duration(seconds(limits.time))),
    ),
  ];
  const own =
    status.tool_calls === undefined
      ? [] // a session has those of its budget only
      : [plural(status.model_calls, "model call"), plural(status.tool_calls, "tool call")];
  return h("div.bars", null, rows, h("p.small.muted", null, own.join(", ")));
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
