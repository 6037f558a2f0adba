// A turn as a conversation, for a session: what was said in bubbles, and a line for each call.

import { fill, h, seen, words } from "./dom.js";
import { contentOf, written } from "./detail.js";
import { clock } from "./format.js";
import { folded, turnLink } from "./parts.js";
import { briefOf } from "./rows.js";
import { Trace } from "./trace.js";

/** Adds events to an element, in the order in which they come. */
export class Conversation {
  /** `asked` is what the task is called. */
  constructor(element, { asked = "Task" } = {}) {
    this.element = element;
    this.parts = new Map();
    this.trace = new Trace({
      asked,
      onRow: (row) => this.draw(row),
      onText: (row, text) => this.parts.get(row)?.text?.appendData(seen(text)),
    });
  }

  see(event) {
    this.trace.see(event);
  }

  draw(row) {
    let part = this.parts.get(row);
    if (!part) {
      part = { element: h("div.turnpart") };
      this.parts.set(row, part);
      const next = row.before && this.parts.get(row.before)?.element;
      this.element.insertBefore(part.element, next ?? null);
    }
    DRAWN[row.kind](part, row);
  }
}

const header = (row, name = row.name) =>
  h("header", null, name, row.began ? [" · ", clock(new Date(row.began).toISOString())] : null);

const DRAWN = {
  message(part, row) {
    fill(part.element, h("article.message.user", null, header(row), words(row.text)));
  },
  model(part, row) {
    part.text = null;
    if (row.isDraft) {
      part.text = document.createTextNode(seen(row.text));
      const dots = h("span.thinking", { "aria-hidden": "true" }, " ···");
      fill(
        part.element,
        h(
          "article.message.assistant.draft",
          { "aria-busy": "true" },
          h("header", null, row.name, dots),
          h("div.words", { dir: "auto" }, part.text),
        ),
      );
    } else if (row.text) {
      fill(part.element, h("article.message.assistant", null, header(row), written(row.text)));
    } else {
      fill(
        part.element,
        row.failures?.map((one) => h("p.note.bad", null, one)),
      );
    }
  },
  call(part, row) {
    if (!part.state) {
      part.brief = h("span.brief", { dir: "auto" });
      part.state = h("span.state");
      part.inside = h("div");
      const summary = [h("code", null, row.name), " ", part.brief, " ", part.state];
      const details = folded(summary, () => part.inside);
      fill(part.element, h("div.tool", { "data-call": row.id }, details));
    }
    fill(part.brief, briefOf(row));
    fill(part.state, row.state);
    part.state.className = `state ${row.tone}`;
    fill(part.inside, contentOf(row));
  },
  child(part, row) {
    fill(
      part.element,
      h("p.note", null, turnLink(row.turn, row.name), ` ${row.text.slice(0, 120)} · ${row.state}`),
    );
  },
  wait(part, row) {
    fill(part.element, h("p.note", null, row.name, row.text ? `: ${row.text}` : ""));
  },
  note(part, row) {
    const tone = row.tone === "bad" ? "p.note.bad" : "p.note";
    const times = row.count > 1 ? ` ×${row.count}` : "";
    const link = row.turn ? [" ", turnLink(row.turn)] : null;
    fill(part.element, h(tone, null, row.text, link, times, row.error ? ` ${row.error}` : ""));
  },
};
