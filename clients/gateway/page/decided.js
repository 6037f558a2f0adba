// What people have decided lately, and what became of calls that waited in the inbox since it was
// opened, as the events of their turns say.

import { followTurn, get } from "./api.js";
import { h } from "./dom.js";
import { ago } from "./format.js";
import { turnLink } from "./parts.js";

const MOST = 50;
let all = [];

/** Read what was decided before the inbox was opened. */
export async function lookBack(signal) {
  try {
    const { decisions } = await get("v1/decisions", { limit: MOST }, signal);
    decisions.forEach(({ turn, call_id, tool, arguments: given, ...decided }) =>
      note({
        id: turn.id,
        call: { call_id, tool, arguments: given },
        verdict: verdictOf(decided),
        by: decided.by ?? "",
        reason: decided.reason,
        at: decided.at,
        tone: toneOf(decided),
      }),
    );
  } catch {
    // the list of what waits says what is wrong
  }
}

/** Add to the list, which has each decision once, the last first. */
function note(found) {
  const others = all.filter(
    ({ id, call, at }) =>
      id !== found.id || call.call_id !== found.call.call_id || instant(at) !== instant(found.at),
  );
  all = [found, ...others].sort((one, other) => instant(other.at) - instant(one.at)).slice(0, MOST);
}

const instant = (at) => Date.parse(at);

/** Note what was decided about a call that no longer waits, and by whom. */
export async function lookUp({ id, call }, signal) {
  const found = {
    id,
    call,
    verdict: "gone",
    by: "",
    reason: "",
    at: new Date().toISOString(),
    tone: "muted",
  };
  try {
    await followTurn(id, {
      query: { include: ["errors"], live: false },
      isPast: true,
      signal,
      onMessage: (event) => {
        if (event.kind === "wait_ended" && event.expired?.includes(call.call_id))
          Object.assign(found, { verdict: "expired", at: event.at, tone: "wait" });
        if (event.kind === "turn_ended" && found.verdict === "gone")
          Object.assign(found, { verdict: `the turn ended: ${event.outcome}`, at: event.at });
        if (event.kind !== "decided" || event.call_id !== call.call_id) return;
        const { by = "", message: reason = "", at } = event;
        Object.assign(found, { verdict: verdictOf(event), by, reason, at, tone: toneOf(event) });
      },
    });
  } catch {
    return; // the next call that goes is looked up again
  }
  note(found);
}

function toneOf({ approve, settlement }) {
  return approve || settlement === "done" ? "good" : "bad";
}

function verdictOf(event) {
  if (event.settlement) return `settled as ${event.settlement}`;
  if (event.is_answer) return "answered";
  return event.approve ? "approved" : "denied";
}

/** What was decided, the last first; null before anything was. */
export function decidedList() {
  if (!all.length) return null;
  return h(
    "ul.rows",
    null,
    all.map((one) =>
      h(
        "li.decided-row",
        null,
        h(`span.${one.tone}`, null, one.verdict),
        h(
          "span",
          null,
          h("code", null, one.call.tool),
          " ",
          h("code.brief", null, one.call.arguments.slice(0, 160)),
        ),
        h(
          "span.small.muted",
          null,
          one.by ? `by ${one.by} · ` : "",
          ago(one.at),
          " · ",
          turnLink(one.id),
        ),
        one.reason ? h("span.small", null, one.reason) : null,
      ),
    ),
  );
}
