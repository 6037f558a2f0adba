// The list of sessions.

import { get, path, post, randomId, repeat } from "./api.js";
import { may } from "./caller.js";
import { fill, h, reconcile } from "./dom.js";
import { ask, problem } from "./dialogs.js";
import { ago } from "./format.js";
import { badge, hashOf } from "./parts.js";

const EVERY = 5_000;

export function sessions(main, signal) {
  const trouble = h("div");
  const list = h("ul.rows", { "aria-label": "Sessions" });
  const empty = h("p.muted", { hidden: true }, "No sessions.");
  fill(
    main,
    h(
      "div.head",
      null,
      h("h1", null, "Sessions"),
      may("start")
        ? h("button.primary", { type: "button", onclick: begin }, "Begin a session")
        : null,
    ),
    trouble,
    empty,
    list,
  );
  repeat(EVERY, signal, async () => {
    try {
      const found = (await get("v1/sessions", { limit: 100 }, signal)).sessions;
      fill(trouble);
      empty.hidden = found.length > 0;
      reconcile(list, found, (one) => one.id, row);
    } catch (error) {
      if (!signal.aborted) fill(trouble, problem(error));
    }
  });
}

function row(entry) {
  return h(
    "li",
    null,
    h(
      "a.row",
      { href: hashOf("sessions", entry.id) },
      h(
        "span.first",
        null,
        badge(entry.is_open ? "open" : "closed"),
        h("span.task", null, entry.id),
      ),
      h("span.numbers", null, h("span.muted", null, ago(entry.started_at))),
      h(
        "span.second.muted",
        null,
        entry.agent,
        Object.entries(entry.labels).map(([name, value]) => [
          " ",
          h("span.label", null, `${name}=${value}`),
        ]),
      ),
    ),
  );
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
