// The rows of a trace as elements: a line each, with a bar for when it was, and what it has inside.
// Thousands of rows are kept in chunks, which a browser lays out only when they are near.

import { contentOf } from "./detail.js";
import { h, fill } from "./dom.js";
import { clock, count, duration, money } from "./format.js";
import { firstLine } from "./markdown.js";
import { turnLink } from "./parts.js";

const CHUNK = 12;
const MARKS = { message: "✎", model: "◆", call: "⚙", child: "↳", wait: "⏸", note: "·" };
const BRIEF = 160;
const LAST = 32;
const WIDE = matchMedia("(min-width: 60rem)");

/** A trace as a list. `onSelect(row)` is called where details are shown beside it. */
export class Rows {
  constructor({ label, onSelect = () => {}, onChild = () => {}, depth = 0, scale = null }) {
    this.element = h("div.trace", { role: "group", "aria-label": label });
    this.onSelect = onSelect;
    this.onChild = onChild;
    this.depth = depth;
    this.entries = new Map();
    this.dirty = new Set();
    this.scale = scale ?? { began: null, last: null, element: this.element };
    this.selected = null;
    if (!scale) this.element.addEventListener("keydown", (event) => this.key(event));
  }

  /** Draw a row, at the latest with the next `flush`. */
  draw(row, isNew) {
    if (isNew) {
      const entry = new Entry(row, this);
      this.entries.set(row, entry);
      this.insert(entry.element, row.before && this.entries.get(row.before)?.element);
    }
    this.dirty.add(row);
  }

  insert(element, before) {
    if (before) {
      before.before(element);
      return;
    }
    let chunk = this.element.lastElementChild;
    if (!chunk || chunk.childElementCount >= CHUNK) {
      chunk = h("div.chunk");
      this.element.append(chunk);
    }
    chunk.append(element);
  }

  /** Show what has changed. */
  flush(trace) {
    if (this.scale.element === this.element && trace.began !== null) {
      this.scale.began = trace.began;
      this.stretch((trace.ended ?? this.now(trace)) - trace.began);
    }
    for (const row of this.dirty) this.entries.get(row).show();
    this.dirty.clear();
  }

  /** The end of the bars of a turn that is not over: a wait for a person does not stretch them. */
  now(trace) {
    return trace.waiting ? trace.last : Math.max(trace.last, Date.now());
  }

  /** Set the time that the whole width of the bars stands for. */
  stretch(milliseconds) {
    const span = Math.max(0.001, milliseconds / 1000);
    if (this.span && span <= this.span && span > this.span * 0.9) return;
    this.span = span * (this.span ? 1.05 : 1);
    this.element.style.setProperty("--span", String(this.span));
  }

  /** Let the rows that run go on. */
  tick() {
    for (const [row, entry] of this.entries) if (row.ended === null && row.began) entry.time();
  }

  select(row, { focus = false } = {}) {
    const entry = this.entries.get(row);
    if (!entry) return;
    for (const one of this.scale.element.querySelectorAll("[aria-current]"))
      one.removeAttribute("aria-current");
    entry.summary?.setAttribute("aria-current", "true");
    if (focus) entry.summary?.focus();
    this.onSelect(row);
  }

  /** Move between rows by the keys of a tree. */
  key(event) {
    const here = event.target.closest?.("summary");
    if (!here || event.altKey || event.ctrlKey || event.metaKey) return;
    const entry = here.parentElement;
    const move = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (move) {
      const all = [...this.element.querySelectorAll("summary.line-of")].filter(
        (one) => !one.parentElement.parentElement.closest("details:not([open])"),
      );
      all[all.indexOf(here) + move]?.focus();
    } else if (event.key === "ArrowRight") entry.open = true;
    else if (event.key === "ArrowLeft") entry.open = false;
    else return;
    event.preventDefault();
  }
}

/** The element of a row. */
class Entry {
  constructor(row, rows) {
    this.row = row;
    this.rows = rows;
    this.name = h("span.name");
    this.brief = h("span.brief", { dir: "auto" });
    this.state = h("span.state");
    this.bar = h(`span.span.${row.kind}`);
    this.took = h("span.took");
    this.amount = h("span.amount");
    const cells = [
      h(
        "span.what",
        null,
        h("span.mark", { "aria-hidden": "true" }, MARKS[row.kind]),
        this.name,
        " ",
        this.brief,
        " ",
        this.state,
      ),
      h("span.track", { "aria-hidden": "true" }, this.bar),
      this.took,
      this.amount,
    ];
    if (row.kind === "note") {
      this.element = h("div.entry.note", null, h("div.line-of", null, cells));
      this.line = this.element.firstElementChild;
    } else {
      this.summary = h("summary.line-of", null, h("span.caret", { "aria-hidden": "true" }), cells);
      this.line = this.summary;
      this.inside = h("div.inside");
      this.element = h("details.entry", null, this.summary);
      this.element.addEventListener("toggle", () => this.fold());
      this.summary.addEventListener("click", (event) => this.click(event));
      this.summary.addEventListener("focus", () => this.focus());
    }
    this.element.classList.add(`is-${row.kind}`);
    if (row.id) this.element.dataset.call = row.id;
    this.line.style.setProperty("--depth", String(row.depth + rows.depth));
  }

  /** A click beside the triangle shows the details beside the list, where there is room. */
  click(event) {
    if (!WIDE.matches || event.target.closest(".caret")) return;
    event.preventDefault();
    this.rows.select(this.row);
  }

  focus() {
    if (WIDE.matches && this.summary.matches(":focus-visible")) this.rows.select(this.row);
  }

  /** Make the content of an open row. */
  fold() {
    if (!this.element.open || this.inside.isConnected) return;
    this.element.append(this.inside);
    if (this.row.kind === "child") this.rows.onChild(this.row, this.inside, this.rows);
    else fill(this.inside, contentOf(this.row));
  }

  /** Make the content before it is opened, so that the browser finds words in it. */
  prepare() {
    if (!this.inside || this.inside.isConnected || this.row.kind === "child") return;
    fill(this.inside, contentOf(this.row));
    this.element.append(this.inside);
  }

  show() {
    const { row } = this;
    fill(this.name, row.isAnswer ? `${row.name} · answer` : row.name);
    if (row.kind === "note")
      fill(this.brief, row.text, row.turn ? [" ", turnLink(row.turn)] : null);
    else fill(this.brief, briefOf(row));
    this.sayState();
    this.time();
    fill(this.amount, row.cost ? money(row.cost) : row.tokens ? `${count(row.tokens)} t` : "");
    if (this.inside?.isConnected && row.kind !== "child") fill(this.inside, contentOf(row));
    if (this.summary?.hasAttribute("aria-current")) this.rows.onSelect(row);
  }

  sayState() {
    const { row } = this;
    const isPlain = ["done", "asked for", "", "completed"].includes(row.state);
    const shown = isPlain && row.decision ? row.decision : row.state;
    const isHidden = isPlain && !row.decision;
    const times = row.count > 1 ? ` ×${row.count}` : "";
    fill(this.state, isHidden ? h("span.unseen", null, shown) : shown, times);
    this.state.className = `state ${row.tone}`;
    this.element.dataset.tone = row.tone || "none";
  }

  time() {
    const { row } = this;
    const { began } = this.rows.scale;
    if (row.kind === "note" || row.kind === "message") {
      if (row.began && !this.took.firstChild)
        fill(this.took, clock(new Date(row.began).toISOString()));
      this.bar.hidden = true;
      return;
    }
    this.bar.hidden = !row.began;
    if (!row.began) return;
    const length = Math.max(0, (row.ended ?? Date.now()) - row.began) / 1000;
    this.bar.style.setProperty("--from", ((row.began - began) / 1000).toFixed(3));
    this.bar.style.setProperty("--long", length.toFixed(3));
    const text = duration(length);
    if (this.took.textContent !== text) fill(this.took, text);
  }
}

/** The beginning of what a row is about: of a call its arguments and its result. */
export function briefOf(row) {
  if (row.kind === "call") {
    const given = firstOf(row.arguments ?? "");
    const answer = row.error ?? row.result ?? row.progress;
    return answer ? `${given} → ${firstOf(answer)}` : given;
  }
  if (row.kind === "model" && !row.text) {
    if (row.error) return firstOf(row.error);
    return row.calls?.length ? `calls ${[...new Set(row.calls)].join(", ")}` : "";
  }
  if (row.kind === "child" && row.said && row.ended === null) return lastOf(row.said);
  if (row.kind === "child" && (row.error || row.result)) {
    return `${firstOf(row.text)} → ${firstOf(row.error || row.result)}`;
  }
  return row.kind === "model" && !row.isDraft ? firstLine(row.text, BRIEF) : firstOf(row.text);
}

/** The end of a text, as short as a narrow row: its last words have to be seen as they come. */
function lastOf(text) {
  const end = text.slice(-LAST).replace(/\s+/g, " ");
  return text.length > LAST ? `…${end}` : end.trim();
}

/** The beginning of a text in a line. */
function firstOf(text) {
  const start = text
    .slice(0, BRIEF * 2)
    .replace(/\s+/g, " ")
    .trim();
  return start.length > BRIEF || text.length > BRIEF * 2 ? `${start.slice(0, BRIEF)}…` : start;
}
