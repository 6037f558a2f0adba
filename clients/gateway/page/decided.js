// What became of calls that waited in the inbox, as the events of their turns say.

import { followTurn } from "./api.js";
import { h } from "./dom.js";
import { ago } from "./format.js";
import { turnLink } from "./parts.js";

const MOST = 50;
const all = [];

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
        const tone = event.approve || event.settlement === "done" ? "good" : "bad";
        const { by = "", message: reason = "", at } = event;
        Object.assign(found, { verdict: verdictOf(event), by, reason, at, tone });
      },
    });
  } catch {
    return; // the next call that goes is looked up again
  }
  all.unshift(found);
  all.length = Math.min(all.length, MOST);
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
