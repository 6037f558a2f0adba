// A call that waits for a person: its arguments, and the decision, or what became of it.

import { path, post } from "./api.js";
import { may } from "./caller.js";
import { announce, fill, h } from "./dom.js";
import { problem } from "./dialogs.js";
import { ago, indented, isJson, until } from "./format.js";
import { json, turnLink } from "./parts.js";
import { question } from "./question.js";

/**
 * The card of a call. `context` is shown beside its arguments, `box` before its name, and `onDone`
 * is called after a decision. A call of unknown outcome of a turn that
 * has ended never expires, and cannot be made again.
 */
export function decision({
  turnId,
  call,
  since,
  about = null,
  context = null,
  box = null,
  onDone = () => {},
}) {
  const body = h("div");
  const trouble = h("div");
  const reason = h("input", {
    type: "text",
    autocomplete: "off",
    "aria-label": call.is_unknown ? `Result of ${call.tool}` : `Reason about ${call.tool}`,
    placeholder: call.is_unknown ? "Result, such as a number" : "Reason, if any",
  });
  const card = h(
    "article.card.decision",
    { "aria-label": `Call of ${call.tool} waits for you` },
    h(
      "div.line",
      null,
      h(
        "h3",
        { tabindex: -1 },
        box,
        h("code", null, call.tool),
        call.is_question
          ? " asks you"
          : call.is_unknown
            ? " was made, and its outcome is unknown"
            : " waits for approval",
      ),
      h(
        "span.small.muted",
        null,
        since ? [ago(since), " · "] : null,
        call.expires_at ? `expires ${until(call.expires_at)}` : "the turn has ended",
      ),
    ),
    about ? h("p.small", null, about) : null,
    call.reason ? h("p.small", null, call.reason) : null,
    context ? h("div.beside", null, context, body) : body,
    trouble,
  );

  let edited = null;
  const view = () => {
    edited = null;
    if (call.question) {
      const asked = question(
        call.question,
        (answer) => send("answer", null, answer),
        () => post(path("turns", turnId, "login"), { call_id: call.call_id }),
      );
      const declines = h(
        "div.buttons",
        null,
        h("button.danger", { type: "button", onclick: () => send("deny") }, "Decline"),
      );
      fill(
        body,
        asked.shown,
        may("decide") ? [asked.fields, h("div.field", null, reason), declines] : refusal(),
      );
      return;
    }
    fill(
      body,
      json(call.arguments),
      may("decide") ? [h("div.field", null, reason), buttons()] : refusal(),
    );
  };
  const refusal = () => h("p.small.muted", null, "You may look, but not decide.");
  const settle = (name, settlement, kind = "button") =>
    h(kind, { type: "button", onclick: () => send("settle", settlement) }, name);
  const outcomes = () =>
    h(
      "div.buttons",
      null,
      call.expires_at ? settle("Make it again", "again", "button.danger") : null,
      settle("It did not", "absent"),
      settle("It took effect", "done", "button.primary"),
    );
  const choices = () =>
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
  const buttons = () => (call.is_unknown ? outcomes() : choices());
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
  const send = async (what, settlement, answer) => {
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
        bodyOf(call, reason.value.trim(), { edited: edited?.value, settlement, answer, what }),
      );
      const [mark, word] = SAID[settlement ?? what];
      announce(`${call.tool}: ${word}`);
      const done = h("p", { tabindex: -1 }, `${mark} ${word[0].toUpperCase()}${word.slice(1)}`);
      fill(body, done);
      done.focus({ preventScroll: true });
      onDone();
    } catch (error) {
      fill(trouble, problem(error));
      setDisabled(card, false);
    }
  };
  view();
  return card;
}

const SAID = {
  approve: ["✓", "approved"],
  deny: ["⊘", "denied"],
  answer: ["✓", "answered"],
  done: ["✓", "it took effect"],
  absent: ["⊘", "it did not take effect"],
  again: ["↻", "it is made again"],
};

/** The body of a decision. Edited arguments are sent as written, so no number is rounded. */
function bodyOf(call, text, { edited, settlement, answer, what }) {
  const named = { call_id: call.call_id, token: call.token };
  if (what === "answer") return `${JSON.stringify(named).slice(0, -1)},"answer":${answer}}`;
  if (settlement) return JSON.stringify({ ...named, settlement, result: text });
  const plain = JSON.stringify({ ...named, reason: text });
  return what === "approve" && edited ? `${plain.slice(0, -1)},"arguments":${edited}}` : plain;
}

function isObject(text) {
  return isJson(text) && text.trimStart().startsWith("{");
}

function setDisabled(card, value) {
  for (const one of card.querySelectorAll("button, textarea, input, select")) one.disabled = value;
}

/** The turn of a call, for a list of calls of many turns. */
export function origin(turn) {
  return [turn.agent, " · ", turnLink(turn.id), turn.task ? ` · ${turn.task}` : ""];
}
