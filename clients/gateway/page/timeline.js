// When each part of a turn began and ended, as bars.

import { fill, h } from "./dom.js";
import { duration } from "./format.js";

const MOST = 200;

export class Timeline {
  constructor() {
    this.parts = new Map();
    this.began = null;
    this.ended = null;
  }

  see(event) {
    const at = event.at ? Date.parse(event.at) : null;
    if (at === null) return;
    this.began ??= at;
    const key = `${event.step}:${event.call_id ?? "model"}:${event.attempt}`;
    switch (event.kind) {
      case "scheduled":
        this.begin(`${event.activity}:${key}`, nameOf(event), event.activity, at);
        break;
      case "child_scheduled":
        this.begin(`tool:${key}`, `${event.tool}: ${event.child.agent}`, "delegate", at);
        break;
      case "wait_began":
        this.begin("wait", `waits for ${event.waits_for}`, "wait", at);
        break;
      case "wait_ended":
        this.end("wait", at);
        break;
      case "turn_ended":
        this.ended = at;
        for (const part of this.parts.values()) part.end ??= at;
        break;
      default:
        this.endOf(event, key, at);
    }
  }

  endOf(event, key, at) {
    const kind = {
      agent_resolved: "agent",
      model_answered: "model",
      tool_returned: "tool",
      tool_lost: "tool",
      verified: "verify",
      child_ended: "tool",
      approval_needed: "tool",
      policy_answered: "policy",
      hook_ended: "middleware",
      call_failed: event.call_id ? "tool" : event.step ? "model" : "agent",
    }[event.kind];
    if (kind)
      this.end(
        `${kind}:${key}`,
        at,
        event.kind === "call_failed" || event.kind === "tool_lost" || event.is_error,
      );
  }

  begin(key, name, kind, at) {
    const open = this.parts.get(key);
    if (open && open.end === null) {
      if (kind === "delegate") open.name += `, ${name.split(": ")[1]}`;
      return;
    }
    const known = this.parts.has(key) ? `${key}#${this.parts.size}` : key;
    this.parts.set(known, { name, kind, begin: at, end: null, bad: false });
  }

  end(key, at, bad = false) {
    const open = [...this.parts].findLast(
      ([known, part]) => known.split("#")[0] === key && part.end === null,
    );
    if (open) Object.assign(open[1], { end: at, bad });
  }

  draw(element) {
    const last = this.ended ?? Date.now();
    const all = [...this.parts.values()];
    const shown = all.slice(-MOST);
    if (!shown.length) return fill(element, h("p.muted.small", null, "Nothing has happened yet."));
    const first = shown.length < all.length ? shown[0].begin : this.began;
    const scale = Math.max(1, last - first);
    return fill(
      element,
      shown.length < all.length
        ? h("p.small.muted", null, `The last ${MOST} of ${all.length} parts.`)
        : null,
      h(
        "ol.timeline",
        null,
        shown.map((part) => rowOf(part, first, scale, last)),
      ),
    );
  }
}

function rowOf(part, first, scale, last) {
  const end = part.end ?? last;
  const filled = h(`span.span.${part.bad ? "bad" : part.kind}`);
  filled.style.left = `${(((part.begin - first) / scale) * 100).toFixed(2)}%`;
  filled.style.width = `${(((end - part.begin) / scale) * 100).toFixed(2)}%`;
  const took = duration((end - part.begin) / 1000);
  return h(
    "li",
    null,
    h("span.name", null, part.name, part.bad ? " ✕" : ""),
    h("span.track", { "aria-hidden": "true" }, filled),
    h("span.took", null, part.end === null ? `${took} …` : took),
  );
}

function nameOf(event) {
  const name =
    event.tool ?? { model: "model", agent: "looks up its agent" }[event.activity] ?? event.activity;
  return event.attempt > 1 ? `${name}, attempt ${event.attempt}` : name;
}
