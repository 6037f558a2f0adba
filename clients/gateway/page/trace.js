// The events of a turn as rows: what was asked, each call of a model and a tool, delegates, waits
// and what people did. Pure: `rows.js` and `conversation.js` draw the rows.

import { duration, money } from "./format.js";

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

/** Who has done it, as the caller was named. */
const by = (event) => (event.by ? ` by ${event.by}` : "");
const because = (event) => (event.message ? `: ${event.message}` : "");

/** The kinds of messages with text that is being generated. */
export const TEXT = new Set(["text_begins", "text", "text_void"]);

/**
 * Rows in the order in which they are shown. `onRow(row, isNew)` is called for each row that is new
 * or has changed, `onText(row, text)` for text that is added to one, while it is generated: to that
 * of a model, or to `said` of a delegate that runs.
 *
 * A row has `kind` (`message`, `model`, `call`, `child`, `wait` or `note`), `name`, `text`, `state`
 * in words and `tone`, `began` and `ended` in milliseconds, and what its kind has: `arguments`,
 * `result`, `error`, `cost`, `tokens`, `turn`.
 */
export class Trace {
  constructor({ asked = "Task", onRow, onText = () => {} }) {
    this.asked = asked;
    this.onRow = onRow;
    this.onText = onText;
    this.rows = [];
    this.byKey = new Map();
    this.began = null;
    this.ended = null;
    this.last = null;
    this.draft = null;
    this.final = null;
  }

  see(event) {
    const at = event.at ? Date.parse(event.at) : null;
    if (at !== null) {
      this.began ??= at;
      this.last = at;
    }
    SEEN[event.kind]?.call(this, event, at);
  }

  /** The row of a key; a new one is made at the end, or after the rows that belong to `after`. */
  row(key, made, after = null) {
    const known = this.byKey.get(key);
    if (known) return known;
    const row = { key, depth: 0, state: "", tone: "", began: null, ended: null, ...made };
    this.byKey.set(key, row);
    let place = this.rows.length;
    if (after) {
      place = this.rows.lastIndexOf(after) + 1;
      while (this.rows[place]?.parent === after.key) place += 1;
    }
    row.before = this.rows[place] ?? null;
    this.rows.splice(place, 0, row);
    this.onRow(row, true);
    return row;
  }

  set(row, changes) {
    Object.assign(row, changes);
    this.onRow(row, false);
  }

  note(event, at, text, more = {}) {
    const last = this.rows.at(-1);
    if (last?.kind === "note" && last.text === text && !more.turn) {
      this.set(last, { count: (last.count ?? 1) + 1 });
      return;
    }
    this.row(`note ${this.rows.length} ${event.cursor ?? ""}`, {
      kind: "note",
      name: "",
      text,
      began: at,
      ended: at,
      ...more,
    });
  }

  /** The row of the model call of a step, which its attempts share. */
  model(event, at) {
    const known = this.byKey.get(`model ${event.step}`);
    if (known) return known;
    return this.row(`model ${event.step}`, {
      kind: "model",
      name: `Step ${event.step}`,
      step: event.step,
      text: "",
      began: at ?? this.last,
      failures: [],
    });
  }

  call(event) {
    return this.row(`call ${event.call_id}`, {
      kind: "call",
      depth: 1,
      id: event.call_id,
      step: event.step,
      name: event.tool ?? "tool",
      arguments: event.arguments ?? null,
      result: null,
      error: null,
      state: "asked for",
      children: [],
    });
  }

  begin(event, at) {
    const row = this.model(event, at);
    this.draft = row;
    this.set(row, {
      text: "",
      isDraft: true,
      attempt: event.attempt,
      tone: "busy",
      state: event.attempt > 1 ? `attempt ${event.attempt}` : "",
      ended: null,
    });
  }

  /** Text of a delegate that runs, at its row. */
  sayBelow(event) {
    const row = this.byKey.get(`child ${event.turn}`);
    if (!row || row.ended !== null) return;
    row.said = event.kind === "text" ? (row.said ?? "") + event.text : "";
    this.onText(row, event.text ?? "");
  }

  endDraft(changes = {}) {
    const row = this.draft;
    this.draft = null;
    if (row) this.set(row, { isDraft: false, ...changes });
  }
}

/** How long a row took, in words. */
function took(row, at) {
  return row.began && at ? ` in ${duration((at - row.began) / 1000)}` : "";
}

const SEEN = {
  turn_started(event, at) {
    const from = event.forked_from;
    if (from) this.note(event, at, `Goes on from step ${from.step} of`, { turn: from.turn_id });
    if (!(event.text || event.task)) return;
    this.task = this.row("task", {
      kind: "message",
      name: this.asked,
      text: event.text || event.task,
      began: at,
      ended: at,
    });
  },
  scheduled(event, at) {
    if (event.activity === "model") this.begin(event, at);
    if (event.activity !== "tool") return;
    const row = this.call(event);
    this.set(row, {
      began: row.began ?? at,
      ended: null,
      arguments: row.arguments ?? event.arguments,
      state: event.attempt > 1 ? `runs, attempt ${event.attempt}` : "runs",
      tone: "busy",
    });
  },
  text_begins(event) {
    this.begin(event, null);
  },
  text(event) {
    if (!this.draft) return;
    this.draft.text += event.text;
    this.onText(this.draft, event.text);
  },
  text_void() {
    if (this.draft) this.set(this.draft, { text: "" });
  },
  model_answered(event, at) {
    const row = this.model(event, at);
    this.draft = null;
    const { usage } = event;
    this.set(row, {
      isDraft: false,
      text: event.text ?? "",
      state: "",
      tone: "good",
      ended: at,
      usage,
      tokens: usage ? usage.input_tokens + usage.output_tokens : null,
      cost: event.cost,
      model: event.model ?? "",
      calls: (event.calls ?? []).map((one) => one.tool),
    });
    if (event.text) this.final = row;
    for (const one of event.calls ?? []) this.call({ ...one, step: event.step });
  },
  tool_progress(event) {
    const { details } = event;
    if (!details.length) return;
    const shown = JSON.stringify(details.length === 1 ? details[0] : details).slice(0, 200);
    this.set(this.call(event), { progress: shown });
  },
  tool_returned(event, at) {
    const row = this.call(event);
    if (event.asks) {
      this.set(row, { state: "asks a person", tone: "wait" }); // the result comes after the answer
      return;
    }
    const state = event.known
      ? `an earlier call has the same effect: ${event.known}`
      : event.is_unknown
        ? `outcome unknown${took(row, at)}`
        : event.is_error
          ? "answered with an error"
          : event.is_job
            ? "the job runs"
            : "done";
    this.set(row, {
      result: event.result ?? "",
      progress: null,
      ended: event.is_job ? null : at,
      state,
      tone: event.is_error ? "bad" : event.is_job ? "busy" : "good",
    });
  },
  call_finished(event, at) {
    const tone = event.is_error ? "bad" : "good";
    const state = event.is_error ? "answered with an error" : "done";
    if (event.call_id)
      this.set(this.call(event), { result: event.result ?? "", ended: at, state, tone });
  },
  polled(event, at) {
    if (event.found) SEEN.call_finished.call(this, event, at);
  },
  tool_lost(event, at) {
    const error = event.message ?? event.error;
    this.set(this.call(event), { error, ended: at, state: `lost: ${event.loss}`, tone: "bad" });
  },
  verified(event, at) {
    const row = this.call(event);
    if (event.verdict === "found") {
      this.set(row, {
        result: event.result ?? "",
        ended: at,
        state: "found to be done",
        tone: "good",
      });
    } else {
      const state = event.verdict === "absent" ? "has not taken effect" : "outcome unknown";
      this.set(row, { ended: at, state, tone: "bad" });
    }
  },
  call_failed(event, at) {
    const error = event.message || event.error || "";
    if (event.call_id) {
      this.set(this.call(event), { error, ended: at, state: "failed", tone: "bad" });
      return;
    }
    const what = event.lost ? "lost" : "failed";
    if (event.step === null || event.step === undefined) {
      this.note(event, at, `Looking up the agent ${what}${error ? `: ${error}` : ""}`, {
        tone: "bad",
      });
      return;
    }
    const row = this.model(event, at);
    row.failures.push(`Attempt ${event.attempt} ${what}${error ? `: ${error}` : ""}`);
    this.draft = null;
    this.set(row, {
      isDraft: false,
      text: "",
      ended: at,
      tone: "bad",
      error,
      state: row.failures.length > 1 ? `${row.failures.length} attempts ${what}` : what,
    });
  },
  child_scheduled(event, at) {
    const { turn, agent } = event.child;
    const row = this.call(event);
    if (!row.children.includes(turn)) row.children.push(turn);
    this.set(row, {
      began: row.began ?? at,
      ended: null,
      state: "delegates at work",
      tone: "busy",
    });
    const child = this.row(
      `child ${turn}`,
      {
        kind: "child",
        depth: 2,
        parent: row.key,
        turn,
        name: agent,
        text: event.task ?? "",
        began: at,
        tone: "busy",
        state: "runs",
        result: null,
        error: null,
      },
      row,
    );
    row.byNumber = { ...row.byNumber, [event.child_number]: child };
  },
  child_told(event) {
    const row = this.call(event).byNumber?.[event.child_number];
    const waits = event.waits_for ? `waits for ${event.waits_for}` : "runs";
    if (row?.ended === null)
      this.set(row, { state: waits, tone: event.waits_for ? "wait" : "busy" });
  },
  child_ended(event, at) {
    const row = this.call(event);
    const outcome = event.outcome ? event.outcome.replaceAll("_", " ") : "ended";
    const tone = event.outcome === "completed" ? "good" : "bad";
    const child = row.byNumber?.[event.child_number];
    const { result = null, message = null } = event;
    if (child) this.set(child, { ended: at, state: outcome, tone, result, error: message });
    const all = row.children.map((turn) => this.byKey.get(`child ${turn}`)).filter(Boolean);
    const left = all.filter((one) => one.ended === null).length;
    const hasFailed = all.some((one) => one.tone === "bad");
    this.set(row, {
      result: [row.result, result].filter(Boolean).join("\n\n") || null,
      error: message ?? row.error,
      ended: left ? null : at,
      state: left
        ? `${left} of ${all.length} at work`
        : all.length > 1
          ? "all ended"
          : `ended: ${outcome}`,
      tone: left ? "busy" : hasFailed ? "bad" : tone,
    });
  },
  decided(event, at) {
    const verdict = verdictOf(event);
    const isGood = event.settlement === "done" || event.approve;
    if (event.call_id) {
      const row = this.call(event);
      const decision = `${verdict}${by(event)}${because(event)}`;
      this.set(row, {
        arguments: event.arguments ?? row.arguments,
        decision,
        state: verdict,
        tone: isGood ? "good" : "bad",
        ended: isGood ? null : at,
      });
    }
    this.note(event, at, `${event.tool ?? "The call"} ${verdict}${by(event)}${because(event)}`, {
      depth: 1,
    });
  },
  said(event, at) {
    this.row(`said ${event.message_id} ${event.cursor}`, {
      kind: "message",
      name: `Message${by(event)}`,
      text: event.text ?? "",
      began: at,
      ended: at,
    });
  },
  budget_added(event, at) {
    const more = Object.entries(event.more ?? {}).filter(([, value]) => value);
    const parts = more.map(([name, value]) =>
      name === "usd" ? money(value) : `${value} ${name.replaceAll("_", " ")}`,
    );
    if (event.iterations) parts.push(`${event.iterations} steps`);
    this.note(event, at, `Added${by(event)}: ${parts.join(", ")}`);
  },
  wait_began(event, at) {
    for (const one of event.pending ?? [])
      this.set(this.call(one), {
        began: this.call(one).began ?? at,
        state: waitOf(one),
        tone: "wait",
      });
    const until = event.until ? `waits until ${new Date(event.until).toLocaleString()}` : "";
    for (const one of event.calls ?? [])
      this.set(this.call(one), { began: this.call(one).began ?? at, state: until, tone: "wait" });
    this.waiting = this.row(`wait ${this.rows.length}`, {
      kind: "wait",
      name: `Waits for ${event.waits_for}`,
      text: event.message ?? "",
      began: at,
      tone: "wait",
    });
  },
  wait_ended(event, at) {
    if (this.waiting) this.set(this.waiting, { ended: at, tone: "" });
    this.waiting = null;
    if (event.expired?.length) this.note(event, at, "No decision in time");
    for (const one of event.woken ?? []) {
      const isRefused = one.by === "refused";
      this.set(this.call(one), {
        error: one.message ?? this.call(one).error,
        ended: at,
        state: isRefused ? "not waited for" : `woken by ${one.by} after ${duration(one.waited_s)}`,
        tone: isRefused ? "bad" : "good",
      });
    }
  },
  emitted(event, at) {
    this.note(event, at, `Event ${event.name}${by(event)}${event.text ? `: ${event.text}` : ""}`);
  },
  cancel_requested(event, at) {
    this.note(event, at, `Cancel requested${by(event)}${because(event)}`);
  },
  resumed(event, at) {
    this.note(event, at, `Resumed${by(event)}`);
  },
  handed_over(event, at) {
    const changes = { ended: at, state: `handed over to ${event.to}`, tone: "good" };
    if (event.call_id)
      this.set(this.call(event), { began: this.call(event).began ?? at, ...changes });
    this.note(event, at, `Handed over to ${event.to}`);
  },
  turn_ended(event, at) {
    this.ended = at;
    this.endDraft({ text: "", state: "not answered", tone: "bad", ended: at });
    for (const row of this.rows) {
      if (row.ended !== null || row.kind === "note") continue;
      const isOpen = row.state === "asked for";
      this.set(row, { ended: at, ...(isOpen ? { state: "not run", tone: "", began: null } : {}) });
    }
    this.outcome = event.outcome;
    if (event.text && event.text !== this.final?.text) {
      this.final = this.row("answer", {
        kind: "model",
        name: "Answer",
        text: event.text,
        began: at,
        ended: at,
        tone: "good",
        failures: [],
      });
    } else if (event.outcome === "completed" && this.final) {
      this.set(this.final, { isAnswer: true });
    }
    this.note(event, at, `The turn has ended: ${(event.outcome ?? "").replaceAll("_", " ")}`, {
      error: event.message ? `${event.error}: ${event.message}` : null,
      tone: event.outcome === "completed" ? "good" : "bad",
    });
  },
};
