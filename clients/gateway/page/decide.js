// A call that waits for a person: its arguments, and the decision.

import { path, post } from "./api.js";
import { may } from "./caller.js";
import { announce, fill, h } from "./dom.js";
import { problem } from "./dialogs.js";
import { ago, indented, isJson, until } from "./format.js";
import { json, turnLink } from "./parts.js";

/** The card of a call. `onDone` is called after a decision. */
export function decision({ turnId, call, since, about = null, onDone = () => {} }) {
  const body = h("div");
  const trouble = h("div");
  const reason = h("input", {
    type: "text",
    autocomplete: "off",
    "aria-label": `Reason about ${call.tool}`,
    placeholder: "Reason, if any",
  });
  const card = h(
    "article.card.decision",
    { "aria-label": `Call of ${call.tool} waits for you` },
    h(
      "div.line",
      null,
      h("h3", null, h("code", null, call.tool), " waits for approval"),
      h(
        "span.small.muted",
        null,
        since ? [ago(since), " · "] : null,
        `expires ${until(call.expires_at)}`,
      ),
    ),
    about ? h("p.small", null, about) : null,
    call.reason ? h("p.small", null, call.reason) : null,
    body,
    trouble,
  );

  let edited = null;
  const view = () => {
    edited = null;
    fill(
      body,
      json(call.arguments),
      may("decide") ? [h("div.field", null, reason), buttons()] : refusal(),
    );
  };
  const refusal = () => h("p.small.muted", null, "You may look, but not decide.");
  const buttons = () =>
    h(
      "div.buttons",
      null,
      h("button", { type: "button", onclick: edit }, "Edit arguments"),
      h("button.danger", { type: "button", onclick: () => send("deny") }, "Deny"),
      h(
        "button.primary",
        { type: "button", onclick: () => send("approve") },
        edited ? "Approve these" : "Approve",
      ),
    );
  const edit = () => {
    edited = h("textarea.code", {
      rows: 8,
      spellcheck: "false",
      "aria-label": `Arguments of ${call.tool}`,
    });
    edited.value = indented(call.arguments);
    const back = h("button.link", { type: "button", onclick: view }, "Keep the model's arguments");
    fill(body, edited, h("p.small", null, back), h("div.field", null, reason), buttons());
    edited.focus();
  };
  const send = async (what) => {
    fill(trouble);
    if (what === "approve" && edited && !isObject(edited.value)) {
      fill(
        trouble,
        problem(
          new Error("The arguments are not a JSON object. Correct them, or keep the model's."),
        ),
      );
      return;
    }
    setDisabled(card, true);
    try {
      await post(
        path("turns", turnId, what),
        bodyOf(what, call, reason.value.trim(), edited?.value),
      );
      announce(`${call.tool}: ${what === "approve" ? "approved" : "denied"}`);
      fill(body, h("p", null, what === "approve" ? "✓ Approved" : "⊘ Denied"));
      onDone();
    } catch (error) {
      fill(trouble, problem(error));
      setDisabled(card, false);
    }
  };
  view();
  return card;
}

/** The body of a decision. Edited arguments are sent as written, so no number is rounded. */
function bodyOf(what, call, reason, edited) {
  const plain = JSON.stringify({ call_id: call.call_id, token: call.token, reason });
  return what === "approve" && edited ? `${plain.slice(0, -1)},"arguments":${edited}}` : plain;
}

function isObject(text) {
  return isJson(text) && text.trimStart().startsWith("{");
}

function setDisabled(card, value) {
  for (const one of card.querySelectorAll("button, textarea, input")) one.disabled = value;
}

/** The turn of a call, for a list of calls of many turns. */
export function origin(turn) {
  return [turn.agent, " · ", turnLink(turn.id), turn.task ? ` · ${turn.task}` : ""];
}
