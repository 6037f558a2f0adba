// What is beside the trace of a turn: its task, its answer or what the model is saying, and facts.

import { fill, h, once, seen, words } from "./dom.js";
import { written } from "./detail.js";
import { effectList } from "./effects.js";
import { ago, clock, plural } from "./format.js";
import { labels, turnLink } from "./parts.js";

export class Overview {
  constructor(id) {
    this.id = id;
    this.task = h("div");
    this.answer = h("div", null);
    this.about = h(
      "section.about-turn",
      { "aria-label": "Task and answer" },
      this.task,
      this.answer,
    );
    this.effects = h("section.card", { "aria-label": "Effects", hidden: true });
    this.facts = h("section.card.facts", { "aria-label": "Facts" }, h("div.skeleton"));
    this.text = null;
    this.shown = "";
  }

  /** Show the task as it was asked. */
  ask(text, name, at) {
    const header = h("header", null, name, at ? [" · ", clock(new Date(at).toISOString())] : null);
    fill(this.task, h("article.message.user", null, header, words(text)));
  }

  /** Show the text of a model call: whole, or while it is generated. */
  say(row) {
    if (!row) return;
    if (row.isDraft) {
      this.text = document.createTextNode(seen(row.text));
      this.shown = null;
      fill(
        this.answer,
        h(
          "article.message.assistant.draft",
          { "aria-busy": "true" },
          h("header", null, row.name, h("span.thinking", { "aria-hidden": "true" }, " ···")),
          h("div.words", { dir: "auto" }, this.text),
        ),
      );
      return;
    }
    this.text = null;
    if (!row.text) {
      if (this.shown === null) fill(this.answer);
      return;
    }
    const name =
      row.isAnswer || row.name === "Answer" ? "Answer" : `${row.name}, the last words so far`;
    if (this.shown === `${name} ${row.text}`) return;
    this.shown = `${name} ${row.text}`;
    fill(
      this.answer,
      h("article.message.assistant", null, h("header", null, name), written(row.text)),
    );
  }

  add(text) {
    this.text?.appendData(seen(text));
  }

  show(status, effects, onDone) {
    const { spent, doing, since, step, steps, children, waits, last_text, ...fixed } = status;
    once(this.facts, fixed, () => [h("h2", null, "Facts"), facts(status)]);
    this.effects.hidden = !effects.length;
    once(this.effects, effects, () => [
      h("h2", null, "Effects"),
      effectList(this.id, effects, onDone),
    ]);
  }
}

function facts(status) {
  const from = status.forked_from;
  const rows = [
    ["Agent", agents(status)],
    ["Version", status.version],
    ["Fell back", status.fell_back],
    ["Started", status.started_at ? ago(status.started_at) : null],
    ["Ended", status.ended_at ? ago(status.ended_at) : null],
    ["Outcome unknown", status.unsettled ? plural(status.unsettled, "call") : null],
    ["Deadline", status.deadline ? clock(status.deadline) : null],
    ["Goes on from", from ? [turnLink(from.turn_id), `, step ${from.step}`] : null],
    ["Labels", labels(status.labels)],
    ["Id", h("span.id", null, status.id)],
    ["Run", h("span.id", null, status.run_id)],
  ];
  return h(
    "dl",
    null,
    rows
      .filter(([, value]) => value && value.length !== 0)
      .map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );
}

function agents({ agent, last_agent: last }) {
  return last && last !== agent ? `${agent} → ${last}` : agent;
}
