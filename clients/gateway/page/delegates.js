// The turn of a delegate inside the trace of its parent: its events are read when it is opened, and
// again when the parent has news of it.

import { followTurn } from "./api.js";
import { fill, h } from "./dom.js";
import { problem } from "./dialogs.js";
import { Feeder } from "./feeder.js";
import { turnLink } from "./parts.js";
import { Rows } from "./rows.js";
import { Trace } from "./trace.js";

export const PRIVATE = ["task", "arguments", "results", "errors"];

export class Delegates {
  constructor(signal, { onSelect, onRead }) {
    this.signal = signal;
    this.onSelect = onSelect;
    this.onRead = onRead;
    this.opened = new Map();
  }

  /** Show the trace of a delegate below its row. */
  open(row, inside, parent) {
    const rows = new Rows({
      label: `Trace of ${row.name}`,
      depth: parent.depth + row.depth + 1,
      scale: parent.scale,
      onSelect: this.onSelect,
      onChild: (child, below, of) => this.open(child, below, of),
    });
    const trace = new Trace({
      onRow: (one, isNew) => this.draw(one, isNew, rows),
      onText: (one) => rows.draw(one, false),
    });
    const trouble = h("div");
    fill(inside, h("p.small.deeper", null, turnLink(row.turn)), rows.element, trouble);
    const feeder = new Feeder(
      (event) => trace.see(event),
      () => rows.flush(trace),
    );
    const opened = { trace, rows, trouble, feeder, cursor: "", isReading: false };
    this.opened.set(row.turn, opened);
    this.read(row.turn);
  }

  draw(row, isNew, rows) {
    rows.draw(row, isNew);
    if (row.kind === "child" && !isNew) this.read(row.turn);
  }

  /** Read what a delegate that is shown has done since. */
  async read(turnId) {
    const opened = this.opened.get(turnId);
    if (!opened) return;
    opened.isStale = true;
    if (opened.isReading) return;
    opened.isReading = true;
    try {
      while (opened.isStale && !this.signal.aborted) {
        opened.isStale = false;
        await followTurn(turnId, {
          query: { include: PRIVATE, after: opened.cursor, live: false },
          isPast: true,
          signal: this.signal,
          onMessage: (event) => {
            opened.cursor = event.cursor || opened.cursor;
            opened.feeder.push(event);
          },
        });
      }
    } catch (error) {
      if (!this.signal.aborted) fill(opened.trouble, problem(error));
    }
    opened.isReading = false;
    this.onRead();
  }

  /** Show text of a turn at its row, if the turn above it is shown here. */
  sayBelow(event) {
    for (const { trace, rows } of this.opened.values()) {
      trace.sayBelow(event);
      rows.flush(trace);
    }
  }

  /** The traces of the delegates that are shown. */
  traces() {
    return [...this.opened.values()];
  }
}
