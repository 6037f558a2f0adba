// The events of a turn as a conversation: what was said, and the calls, folded.

import { h, fill, seen, words } from "./dom.js";
import { clock, count, duration, money } from "./format.js";
import { badge, folded, json, turnLink } from "./parts.js";

const SETTLED = {
  done: "settled: it took effect",
  absent: "settled: it did not take effect",
  again: "settled: it is made again",
};

/** What a person decided, in words. */
function verdictOf(event) {
  if (event.settlement) return SETTLED[event.settlement];
  if (event.is_answer) return "answered";
  if (!event.approve) return "denied";
  return event.arguments ? "approved with other arguments" : "approved";
}

/** What a call waits for, in words. */
function waitOf(call) {
  if (call.is_question) return "asks a person";
  return call.is_unknown ? "outcome unknown" : "waits for approval";
}

/** Adds events to an element, in the order in which they come. */
export class Conversation {
  /** `asked` is what the task is called. */
  constructor(element, { asked = "Task" } = {}) {
    this.element = element;
    this.asked = asked;
    this.tools = new Map();
    this.draft = null;
    this.lastText = "";
  }

  see(event) {
    SHOWN[event.kind]?.call(this, event);
  }

  note(event, ...content) {
    this.element.append(h("p.note", null, event.at ? clock(event.at) : null, " ", content));
  }

  /** The text of a model call in flight. */
  begin(step, attempt) {
    this.end();
    const text = document.createTextNode("");
    const element = h(
      "article.message.assistant.draft",
      { "aria-busy": "true" },
      h(
        "header",
        null,
        `Step ${step}${attempt > 1 ? `, attempt ${attempt}` : ""}`,
        h("span.thinking", { "aria-hidden": "true" }, " ···"),
      ),
      h("div.words", { dir: "auto" }, text),
    );
    this.element.append(element);
    this.draft = { element, text, step, attempt };
  }

  end() {
    this.draft?.element.remove();
    this.draft = null;
  }

  tool(event) {
    const known = this.tools.get(event.call_id);
    if (known) return known;
    const made = new ToolCall(event.call_id, event.tool, event.arguments);
    this.tools.set(event.call_id, made);
    this.element.append(made.element);
    return made;
  }
}

/** A call: its name and state in a line, its arguments and result folded. */
class ToolCall {
  constructor(id, name, given) {
    this.given = given;
    this.result = null;
    this.error = null;
    this.began = null;
    this.state = h("span.state", null, "asked for");
    this.extra = h("div.small.extra");
    const summary = [h("code", null, name ?? "tool"), " ", this.state];
    this.element = h(
      "div.tool",
      { "data-call": id },
      folded(summary, () => this.content()),
      this.extra,
    );
  }

  content() {
    this.inside = h("div");
    this.show();
    return this.inside;
  }

  set(state, kind = "") {
    fill(this.state, state);
    this.state.className = `state ${kind}`;
    this.show();
  }

  show() {
    if (!this.inside) return;
    fill(
      this.inside,
      h("h4", null, "Arguments"),
      json(this.given ?? "{}"),
      this.result !== null ? [h("h4", null, "Result"), json(this.result)] : null,
      this.error ? [h("h4", null, "Error"), words(this.error)] : null,
    );
  }

  took(at) {
    return this.began ? ` in ${duration((new Date(at) - this.began) / 1000)}` : "";
  }
}

/** Who has done it, as the caller was named. */
const by = (event) => (event.by ? ` by ${event.by}` : "");

/** Until when a call waits, in words. */
const untilOf = (event) => `waits until ${new Date(event.until).toLocaleString()}`;

const SHOWN = {
  turn_started(event) {
    const from = event.forked_from;
    if (from) this.note(event, "Goes on from ", turnLink(from.turn_id), `, step ${from.step}`);
    if (!(event.text || event.task)) return;
    this.element.append(
      h(
        "article.message.user",
        null,
        h("header", null, `${this.asked} · `, clock(event.at)),
        words(event.text || event.task),
      ),
    );
  },
  scheduled(event) {
    if (event.activity === "model") this.begin(event.step, event.attempt);
    if (event.activity !== "tool") return;
    const tool = this.tool(event);
    tool.began = new Date(event.at);
    tool.given ??= event.arguments;
    tool.set(event.attempt > 1 ? `runs, attempt ${event.attempt}` : "runs", "busy");
  },
  text_begins(event) {
    this.begin(event.step, event.attempt);
  },
  text(event) {
    this.draft?.text.appendData(seen(event.text));
  },
  text_void() {
    if (this.draft) this.draft.text.data = "";
  },
  model_answered(event) {
    this.end();
    const used = event.usage ? count(event.usage.input_tokens + event.usage.output_tokens) : null;
    const header = h(
      "header",
      null,
      `Step ${event.step} · `,
      clock(event.at),
      used ? ` · ${used} tokens` : "",
    );
    if (event.text) {
      this.lastText = event.text;
      this.element.append(h("article.message.assistant", null, header, words(event.text)));
    } else if (event.calls?.length) {
      this.element.append(h("article.message.assistant.silent", null, header));
    }
    for (const call of event.calls ?? []) this.tool({ ...call });
  },
  tool_progress(event) {
    const details = JSON.stringify(event.details.length === 1 ? event.details[0] : event.details);
    fill(this.tool(event).extra, event.details.length ? details.slice(0, 200) : "");
  },
  tool_returned(event) {
    const tool = this.tool(event);
    tool.result = event.result ?? "";
    fill(tool.extra);
    tool.set(
      event.known
        ? `an earlier call has the same effect: ${event.known}`
        : event.is_unknown
          ? `outcome unknown${tool.took(event.at)}`
          : event.is_error
            ? `answered with an error${tool.took(event.at)}`
            : `done${tool.took(event.at)}`,
      event.is_error ? "bad" : "good",
    );
  },
  tool_lost(event) {
    const tool = this.tool(event);
    tool.error = event.message ?? event.error;
    tool.set(`lost: ${event.loss}`, "bad");
  },
  verified(event) {
    const tool = this.tool(event);
    if (event.verdict === "found") {
      tool.result = event.result ?? "";
      tool.set(`found to be done${tool.took(event.at)}`, "good");
    } else {
      tool.set(event.verdict === "absent" ? "has not taken effect" : "outcome unknown", "bad");
    }
  },
  call_failed(event) {
    if (event.call_id) {
      const tool = this.tool(event);
      tool.error = [event.error, event.message].filter(Boolean).join(": ");
      tool.set("failed", "bad");
      return;
    }
    this.end();
    this.note(
      event,
      h("span.bad", null, event.lost ? "Attempt lost" : "Attempt failed"),
      ` in step ${event.step}`,
      event.message ? `: ${event.message}` : event.error ? `: ${event.error}` : "",
    );
  },
  child_scheduled(event) {
    const tool = this.tool(event);
    tool.began ??= new Date(event.at);
    tool.set("delegates at work", "busy");
    tool.extra.append(turnLink(event.child.turn, event.child.agent), " ");
  },
  child_ended(event) {
    const tool = this.tool(event);
    if (event.result)
      tool.result = tool.result ? `${tool.result}\n\n${event.result}` : event.result;
    if (event.message) tool.error = event.message;
    const state = event.outcome ? `ended: ${event.outcome.replaceAll("_", " ")}` : "ended";
    tool.set(`${state}${tool.took(event.at)}`, event.outcome === "completed" ? "good" : "bad");
  },
  decided(event) {
    const verdict = verdictOf(event);
    if (event.call_id && event.arguments) this.tool(event).given = event.arguments;
    const isGood = event.settlement === "done" || event.approve;
    if (event.call_id) this.tool(event).set(verdict, isGood ? "good" : "bad");
    this.note(
      event,
      event.tool ? h("code", null, event.tool) : "The call",
      ` ${verdict}${by(event)}`,
      event.message ? `: ${event.message}` : "",
    );
  },
  said(event) {
    this.element.append(
      h(
        "article.message.user",
        null,
        h("header", null, `Message${by(event)} · `, clock(event.at)),
        words(event.text ?? ""),
      ),
    );
  },
  budget_added(event) {
    const more = event.more?.usd ? money(event.more.usd) : null;
    const rest = Object.entries(event.more ?? {}).filter(
      ([name, value]) => name !== "usd" && value,
    );
    this.note(
      event,
      `Added${by(event)}: `,
      [
        more,
        ...rest.map(([name, value]) => `${value} ${name.replaceAll("_", " ")}`),
        event.iterations ? `${event.iterations} steps` : null,
      ]
        .filter(Boolean)
        .join(", "),
    );
  },
  wait_began(event) {
    for (const one of event.pending ?? [])
      this.tool(one).set(waitOf(one), "wait");
    for (const one of event.calls ?? []) this.tool(one).set(untilOf(event), "wait");
    this.note(event, `Waits for ${event.waits_for}`, event.message ? `: ${event.message}` : "");
  },
  wait_ended(event) {
    if (event.expired?.length) this.note(event, "No decision in time");
    for (const one of event.woken ?? []) {
      const tool = this.tool(one);
      if (one.message) tool.error = one.message;
      if (one.by === "refused") tool.set("not waited for", "bad");
      else tool.set(`woken by ${one.by} after ${duration(one.waited_s)}`, "good");
    }
  },
  emitted(event) {
    this.note(event, `Event ${event.name}${by(event)}`, event.text ? `: ${event.text}` : "");
  },
  cancel_requested(event) {
    this.note(event, `Cancel requested${by(event)}`, event.message ? `: ${event.message}` : "");
  },
  resumed(event) {
    this.note(event, `Resumed${by(event)}`);
  },
  handed_over(event) {
    this.note(event, `Handed over to ${event.to}`);
  },
  turn_ended(event) {
    this.end();
    if (event.text && event.text !== this.lastText) {
      this.element.append(
        h("article.message.assistant", null, h("header", null, "Answer"), words(event.text)),
      );
    }
    this.note(
      event,
      badge("ended", event.outcome),
      event.message ? ` ${event.error}: ${event.message}` : "",
    );
  },
};
