// The last day in numbers: how many turns, what they cost, why some failed, a chart by the hour,
// and the versions of agents.

import { fill, h } from "./dom.js";
import { count, duration, money, plural } from "./format.js";
import { lastOf } from "./listing.js";
import { reasonOf } from "./reasons.js";
import { versions } from "./versions.js";

const HOUR = 3_600_000;
const HOURS = 24;
const PARTS = [
  ["good", "completed"],
  ["bad", "without an answer"],
  ["open", "not ended"],
];

const partOf = ({ outcome }) => (outcome ? (outcome === "completed" ? "good" : "bad") : "open");

/** The numbers of turns. `isWhole` is false while there may be more; `onReason(code)` filters. */
export function day(element, turns, isWhole, onReason) {
  const now = Date.now();
  const since = (Math.floor(now / HOUR) - HOURS + 1) * HOUR;
  const those = turns.filter((one) => !one.ended_at || lastOf(one) >= since);
  element.hidden = !those.length;
  if (those.length)
    fill(
      element,
      numbers(those, isWhole),
      h("div.day-row", null, chart(those, since), reasons(those, onReason)),
      versions(those),
    );
}

function numbers(turns, isWhole) {
  const of = (part) => turns.filter((one) => partOf(one) === part).length;
  const ended = turns.filter((one) => one.outcome);
  const cost = ended.reduce((sum, one) => sum + Number(one.spent ?? 0), 0);
  const unpriced = ended.filter((one) => one.spent === null).length;
  const times = ended
    .map((one) => Date.parse(one.ended_at) - Date.parse(one.started_at))
    .sort((a, b) => a - b);
  const facts = [
    ["Last 24 hours", plural(turns.length, "turn") + (isWhole ? "" : " so far")],
    ["Completed", count(of("good"))],
    ["Without an answer", count(of("bad"))],
    ["Not ended", count(of("open"))],
    [
      "Spent by ended ones",
      money(cost.toFixed(6)) + (unpriced ? `, ${unpriced} of unknown price` : ""),
    ],
    [
      "Half took less than",
      times.length ? duration(times[Math.floor(times.length / 2)] / 1000) : "–",
    ],
  ];
  return h(
    "dl.numbers-of-day",
    null,
    facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}

function chart(turns, since) {
  const hours = Array.from({ length: HOURS }, () => ({ good: 0, bad: 0, open: 0 }));
  for (const one of turns) {
    const place = Math.floor((lastOf(one) - since) / HOUR);
    hours[Math.min(HOURS - 1, Math.max(0, place))][partOf(one)] += 1;
  }
  const most = Math.max(...hours.map(({ good, bad, open }) => good + bad + open));
  const bars = hours.map((hour, place) => {
    const at = new Date(since + place * HOUR);
    const said = PARTS.map(([part, name]) => `${hour[part]} ${name}`).join(", ");
    const bar = h("span.hour", { title: `${at.getHours()}:00: ${said}` });
    for (const [part] of PARTS) {
      if (!hour[part]) continue;
      const piece = h(`span.piece.${part}`);
      piece.style.height = `${((hour[part] / most) * 100).toFixed(1)}%`;
      bar.prepend(piece);
    }
    return bar;
  });
  const busiest = hours.findIndex(({ good, bad, open }) => good + bad + open === most);
  return h(
    "figure.day-chart",
    {
      role: "img",
      "aria-label":
        `Turns by the hour over ${HOURS} hours: at most ${most}, ` +
        `${HOURS - 1 - busiest} hours ago`,
    },
    h("div.hours", null, bars),
    h(
      "figcaption.small.muted",
      null,
      h("span", null, "24 h ago"),
      h("span", null, `most in an hour: ${most}`),
      h("span", null, "now"),
    ),
  );
}

/** Why turns ended without an answer, the most frequent first. */
function reasons(turns, onReason) {
  const codes = new Map();
  for (const { error, outcome } of turns) {
    if (outcome && error) codes.set(error.code, (codes.get(error.code) ?? 0) + 1);
  }
  if (!codes.size) return null;
  const sorted = [...codes].sort((one, other) => other[1] - one[1]).slice(0, 6);
  return h(
    "div.reasons",
    null,
    h("h2.small", null, "Why without an answer"),
    h(
      "ul",
      null,
      sorted.map(([code, number]) =>
        h(
          "li",
          null,
          h(
            "button.link",
            { type: "button", title: code, onclick: () => onReason(code) },
            reasonOf(code),
          ),
          h("span.amount", null, ` ${count(number)}`),
        ),
      ),
    ),
  );
}
