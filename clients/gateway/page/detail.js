// What a row of a trace has inside: the text of a model, the arguments and the result of a call.

import { h, words } from "./dom.js";
import { fields, hasFields } from "./fields.js";
import { clock, count, duration, money } from "./format.js";
import { markdown } from "./markdown.js";
import { json, turnLink } from "./parts.js";

/** The text of a model: fields if it is an object, or else Markdown. */
export function written(text) {
  return hasFields(text) ? fields(text) : markdown(text);
}

/** The content of a row, without its heading. */
export function contentOf(row) {
  switch (row.kind) {
    case "message":
      return [words(row.text)];
    case "model":
      return ofModel(row);
    case "call":
      return ofCall(row);
    case "child":
      return ofChild(row);
    default:
      return [row.text ? words(row.text) : null, row.error ? words(row.error) : null];
  }
}

function ofModel(row) {
  return [
    row.failures?.map((one) => h("p.small.bad", null, one)),
    row.text ? (row.isDraft ? words(row.text) : written(row.text)) : null,
    row.usage ? h("p.small.muted", null, usageOf(row)) : null,
  ];
}

function usageOf({ usage, cost, model }) {
  const parts = [
    model,
    `${count(usage.input_tokens)} tokens in, ${count(usage.output_tokens)} out`,
    cost === undefined ? "" : money(cost),
  ];
  return parts.filter(Boolean).join(" · ");
}

function ofCall(row) {
  return [
    row.decision ? h("p.small", null, row.decision) : null,
    row.progress ? h("p.small", null, row.progress) : null,
    h("h4", null, "Arguments"),
    json(row.arguments ?? "{}"),
    row.result !== null ? [h("h4", null, "Result"), json(row.result)] : null,
    row.error ? [h("h4", null, "Error"), words(row.error)] : null,
    row.children.length
      ? [h("h4", null, "Delegates"), row.children.map((id) => h("p", null, turnLink(id)))]
      : null,
  ];
}

function ofChild(row) {
  return [
    h("p", null, turnLink(row.turn, `Open the turn of ${row.name}`)),
    h("h4", null, "Task"),
    words(row.text),
    row.result ? [h("h4", null, "Result"), written(row.result)] : null,
    row.error ? [h("h4", null, "Error"), words(row.error)] : null,
  ];
}

/** A row with its heading, for the place beside the list. */
export function panelOf(row, onBack) {
  const time = row.began && row.ended ? duration((row.ended - row.began) / 1000) : null;
  return h(
    "section.card.panel",
    { "aria-label": `Details of ${row.name}` },
    h(
      "div.line",
      null,
      h("h2", null, h(row.kind === "call" ? "code" : "span", null, row.name || "Event")),
      h("button.link.small", { type: "button", onclick: onBack }, "Back to the turn"),
    ),
    h(
      "p.small.muted",
      null,
      row.state ? [h(`span.${row.tone || "muted"}`, null, row.state), " · "] : null,
      row.began ? clock(new Date(row.began).toISOString()) : null,
      time ? ` · ${time}` : "",
      row.step ? ` · step ${row.step}` : "",
    ),
    contentOf(row),
  );
}
