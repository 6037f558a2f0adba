// Messages of turns that are over.

import { written } from "./detail.js";
import { h, seen, words } from "./dom.js";
import { bytes } from "./format.js";
import { folded, json } from "./parts.js";

/** The results of calls by the id of the call. */
export function resultsOf(messages) {
  const results = messages.filter((one) => one.role === "tool").flatMap((one) => one.results);
  return new Map(results.map((one) => [one.call_id, one]));
}

/** A message, with the results of its calls. */
export function bubble(message, results) {
  const { parts } = message;
  const shown = message.role === "user" ? words : written;
  const texts = parts.filter((one) => one.type === "text").map((one) => shown(one.text));
  const media = parts
    .filter((one) => one.type === "media")
    .map((one) => h("p.note", null, seen(`[${one.media_type}, ${sizeOf(one)}]`)));
  const calls = parts
    .filter((one) => one.type === "tool_call")
    .map((one) => call(one, results.get(one.id)));
  const kind = message.role === "user" ? "user" : "assistant";
  return h(
    "div.turnpart",
    null,
    texts.length || media.length ? h(`article.message.${kind}`, null, texts, media) : null,
    calls,
  );
}

/** The size of an image or a file, or its address. */
function sizeOf(media) {
  return media.data ? bytes(Math.floor((media.data.length * 3) / 4)) : (media.url ?? "no data");
}

function call(one, result) {
  const content = () => [
    h("h4", null, "Arguments"),
    json(one.arguments),
    result ? [h("h4", null, "Result"), json(result.content)] : null,
  ];
  const [kind, state] = !result
    ? ["wait", "no result"]
    : result.is_error
      ? ["bad", "error"]
      : ["good", "done"];
  return h(
    "div.tool",
    null,
    folded([h("code", null, one.name), " ", h(`span.state.${kind}`, null, state)], content),
  );
}
