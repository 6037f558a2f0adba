// The calls of all turns that wait for a person.

import { get, repeat } from "./api.js";
import { decision, origin } from "./decide.js";
import { announce, fill, h, reconcile } from "./dom.js";
import { problem } from "./dialogs.js";
import { ago, until } from "./format.js";
import { json } from "./parts.js";

const EVERY = 3_000;

export function inbox(main, signal) {
  const trouble = h("div");
  const empty = h("p.muted", { hidden: true }, "No call waits for a decision.");
  const list = h("div.waits", { "aria-label": "Calls that wait" });
  fill(main, h("div.head", null, h("h1", null, "Inbox")), trouble, empty, list);
  const refresh = async () => {
    try {
      const { approvals } = await get("v1/approvals", { limit: 100 }, signal);
      fill(trouble);
      empty.hidden = approvals.length > 0;
      reconcile(
        list,
        approvals.map(({ turn, call }) => ({
          id: turn.id,
          agent: turn.agent,
          task: turn.task,
          call,
        })),
        (one) => `${one.id} ${one.call.is_job ? one.call.call_id : one.call.token}`,
        (one) =>
          one.call.is_job
            ? elsewhere(one)
            : decision({
                turnId: one.id,
                call: one.call,
                about: origin(one),
                onDone: () => setTimeout(refresh, 800),
              }),
      );
      count(decisions(approvals));
    } catch (error) {
      if (!signal.aborted) fill(trouble, problem(error));
    }
  };
  repeat(EVERY, signal, refresh);
}

/** A call whose result comes from elsewhere: there is nothing to decide. */
function elsewhere({ call, ...turn }) {
  return h(
    "article.card",
    { "aria-label": `Call of ${call.tool} is done elsewhere` },
    h(
      "div.line",
      null,
      h("h3", null, h("code", null, call.tool), " is done elsewhere"),
      h("span.small.muted", null, ago(call.since), " · ", `given up ${until(call.expires_at)}`),
    ),
    h("p.small", null, origin(turn)),
    h("p.small", null, call.note),
    json(call.arguments),
  );
}

function decisions(approvals) {
  return approvals.filter(({ call }) => !call.is_job).length;
}

let last = 0;

/** Show the number of calls that wait beside the link. */
export function count(number) {
  const element = document.getElementById("waiting");
  element.hidden = number === 0;
  fill(
    element,
    String(number),
    h("span.unseen", null, number === 1 ? " call waits" : " calls wait"),
  );
  if (number > last)
    announce(number === 1 ? "A call waits for a decision" : `${number} calls wait for a decision`);
  last = number;
}

/** Keep the number current on all views. */
export function watchCount(signal, isInbox) {
  repeat(10_000, signal, async () => {
    if (isInbox()) return;
    try {
      count(decisions((await get("v1/approvals", { limit: 100 }, signal)).approvals));
    } catch {
      // the view itself shows what is wrong
    }
  });
}
