// The list of sessions, each with its last message, the last answer, and what it has cost.

import { get, path, post, randomId } from "./api.js";
import { may } from "./caller.js";
import { h } from "./dom.js";
import { ask } from "./dialogs.js";
import { ago, money, plural } from "./format.js";
import { firstLine } from "./markdown.js";
import { badge, hashOf, labels } from "./parts.js";
import { resourceList, resourceRow } from "./resources.js";

const AT_ONCE = 4;
const MOST_ASKED = 30;

export function sessions(main, signal) {
  const known = new Map();
  const begins = h("button.primary", { type: "button", onclick: begin }, "Begin a session");
  resourceList(main, signal, {
    title: "Sessions",
    where: "v1/sessions",
    field: "sessions",
    none: "No sessions.",
    action: may("start") ? begins : null,
    row,
    extra: {
      with: (entry) => ({ ...entry, last: known.get(entry.id) ?? null }),
      read: (entries) => readLast(entries, known, signal),
    },
  });
}

/** Read the last message and the cost of the first sessions; of closed ones once. */
async function readLast(entries, known, signal) {
  const those = entries.filter((one) => one.is_open || !known.has(one.id)).slice(0, MOST_ASKED);
  const work = async () => {
    for (let one = those.shift(); one && !signal.aborted; one = those.shift())
      known.set(one.id, await lastOf(one, known.get(one.id), signal));
  };
  const isAny = those.length > 0;
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return isAny && !signal.aborted;
}

async function lastOf(entry, before, signal) {
  try {
    const { turns, spent, state, queue } = await get(path("sessions", entry.id), {}, signal);
    const last = { turns, state, usd: spent.usd, waits: queue.length, message: "", answer: "" };
    const isSame = before?.turns === turns && before?.state === state && state !== "running";
    if (isSame) return { ...last, message: before.message, answer: before.answer };
    if (!turns) return last;
    const turn = await get(path("turns", `${entry.id}/${turns}`), {}, signal);
    return { ...last, message: turn.task, answer: firstLine(turn.last_text) };
  } catch {
    return before ?? null;
  }
}

function row(entry) {
  const { last } = entry;
  return resourceRow({
    mark: badge(last?.state ?? (entry.is_open ? "open" : "closed")),
    link: h("a.task", { href: hashOf("sessions", entry.id) }, entry.id),
    numbers: [
      h("span.amount", null, last ? money(last.usd) : "…"),
      h("span.muted", null, ago(entry.started_at)),
    ],
    second: [
      last?.message ? h("span.last", { dir: "auto" }, h("strong", null, last.message)) : null,
      last?.answer ? h("span.last", { dir: "auto" }, last.answer) : null,
      entry.agent,
      last ? ` · ${plural(last.turns, "turn")}` : "",
      last?.waits ? ` · ${plural(last.waits, "message")} in the queue` : "",
      " ",
      labels(entry.labels),
    ],
  });
}

async function begin() {
  const key = randomId();
  let id = "";
  const sent = await ask({
    title: "Begin a session",
    about: ["Each message starts a turn, which spends money up to the budget of its agent."],
    fields: [
      { name: "agent", label: "Agent" },
      { name: "id", label: "Id", value: `chat-${key}` },
      { name: "text", label: "First message", type: "textarea" },
      ...(may("budget")
        ? [
            {
              name: "usd",
              label: "Budget of the session in US dollars",
              inputmode: "decimal",
              hint: "Empty for none.",
            },
          ]
        : []),
    ],
    action: "Begin",
    send: ({ agent, id: given, text, usd }) => {
      id = given;
      const budget = usd ? { budget: { usd: usd.replace(",", ".") } } : {};
      return post(
        path("sessions", id, "messages"),
        { text, begin: { agent, live: true, ...budget } },
        key,
      );
    },
  });
  if (sent) location.hash = hashOf("sessions", id);
}
