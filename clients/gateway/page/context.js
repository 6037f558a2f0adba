// What a call is about: what was asked, and what the model said when it asked for the call.

import { followTurn } from "./api.js";
import { written } from "./detail.js";
import { fill, h, words } from "./dom.js";

const known = new Map();

/** An element with the request and the words of the model, which are read when it is seen. */
export function contextOf(one, signal) {
  const element = h("div.context", null, h("div.skeleton"), h("div.skeleton"));
  const key = `${one.id} ${one.call.token}`;
  if (!known.has(key)) known.set(key, read(one, signal));
  known.get(key).then(
    (found) => fill(element, shown(found, one)),
    (error) => {
      known.delete(key);
      if (!signal.aborted) fill(element, h("p.small.muted", null, `Not read: ${error.title}.`));
    },
  );
  return element;
}

async function read({ id, call }, signal) {
  const found = { request: "", said: "", messages: [] };
  await followTurn(id, {
    query: { include: ["task"], live: false },
    isPast: true,
    signal,
    onMessage: (event) => {
      if (event.kind === "turn_started") found.request = event.text || event.task || "";
      if (event.kind === "said") found.messages.push(event.text ?? "");
      const asks =
        event.kind === "model_answered" && event.calls.some((one) => one.call_id === call.call_id);
      if (asks) found.said = event.text ?? "";
    },
  });
  return found;
}

function shown({ request, said, messages }, one) {
  const asked = [request || one.task, ...messages].filter(Boolean);
  return [
    h("h4", null, "Request"),
    asked.map((text) => h("div.clamped", { tabindex: 0 }, words(text))),
    h("h4", null, `What ${one.agent} said`),
    said
      ? h("div.clamped", { tabindex: 0 }, written(said))
      : h("p.small.muted", null, "Nothing beside the call."),
  ];
}
