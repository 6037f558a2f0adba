// What is spent of each limit, as a row of meters; a limit that is used up says so.

import { h } from "./dom.js";
import { count, duration, money, seconds } from "./format.js";

function meter(label, spent, limit, text, isUsedUp = false) {
  const part = limit ? Math.min(1, spent / limit) : 0;
  const inner = h("span.filled");
  inner.style.width = `${(part * 100).toFixed(1)}%`;
  const full = isUsedUp || (limit && part >= 1);
  const level = full ? "full" : part >= 0.8 ? "high" : "low";
  return h(
    "div.spending",
    null,
    h("span.small.muted", null, label),
    h("span.amount", null, text, full ? h("span.used-up", null, " used up") : null),
    limit
      ? h(
          `div.bar.${level}`,
          {
            role: "meter",
            "aria-label": label,
            "aria-valuemin": 0,
            "aria-valuemax": limit,
            "aria-valuenow": Math.min(spent, limit),
            "aria-valuetext": full ? `${text}, used up` : text,
          },
          inner,
        )
      : null,
  );
}

const of = (text, limit) => (limit ? `${text} of ${limit}` : `${text}, no limit`);

/** Whether the turn ended, or waits, because this limit is used up. */
function usedUp({ error, waits = [] }, dimension) {
  const kind = dimension === "iterations" ? "iterations" : "budget";
  if (kind === "iterations" && error?.code === "MAX_ITERATIONS") return true;
  if (error?.code === "TURN_BUDGET_EXCEEDED") return error.context?.dimension === dimension;
  const wait = waits.find((one) => one.kind === kind);
  return Boolean(wait) && (kind === "iterations" || wait.reason.includes(WORDS[dimension]));
}

const WORDS = {
  usd: "$",
  time: "time",
  tokens: "token",
  model_calls: "model call",
  tool_calls: "tool call",
};

/** The spending of a turn, a session or a batch against its budget, a meter for each limit. */
export function limits(status) {
  const { spent, budget, steps, max_iterations: most = null } = status;
  const limit = budget ?? {};
  const time = seconds(limit.time);
  const rows = [
    meter(
      "Cost",
      Number(spent.usd ?? 0),
      Number(limit.usd ?? 0),
      of(money(spent.usd), limit.usd && money(limit.usd)),
      usedUp(status, "usd"),
    ),
    steps === undefined
      ? null
      : meter(
          "Steps",
          steps,
          most,
          of(count(steps), most && count(most)),
          usedUp(status, "iterations"),
        ),
    meter(
      "Tokens",
      spent.tokens,
      limit.tokens,
      of(count(spent.tokens), limit.tokens && count(limit.tokens)),
      usedUp(status, "tokens"),
    ),
    spent.time === undefined
      ? null
      : meter(
          "Time",
          seconds(spent.time),
          time,
          of(duration(seconds(spent.time)), time && duration(time)),
          usedUp(status, "time"),
        ),
    ["model_calls", "tool_calls"].map((name) =>
      meter(
        name === "model_calls" ? "Model calls" : "Tool calls",
        spent[name],
        limit[name],
        limit[name] ? of(count(spent[name]), count(limit[name])) : count(spent[name]),
        usedUp(status, name),
      ),
    ),
  ];
  return h("div.limits", { role: "group", "aria-label": "Spending" }, rows);
}

/** The meters before anything is known. */
export function emptyLimits() {
  return h(
    "div.limits",
    { "aria-hidden": "true" },
    Array.from({ length: 6 }, () => h("div.skeleton")),
  );
}
