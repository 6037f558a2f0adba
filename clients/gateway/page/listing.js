// The turns of a filter: the first page again and again, and the pages before it while they are of
// the last day, or somebody scrolls to them.

import { breath, get } from "./api.js";

const PAGE = 200;
const MOST = 10_000;
const DAY = 24 * 3_600_000;

/** When a turn was last active, in milliseconds. */
export const lastOf = (entry) => Date.parse(entry.ended_at ?? entry.started_at);

export class Turns {
  constructor(query, signal) {
    this.query = query;
    this.signal = signal;
    this.entries = new Map();
    this.next = null;
    this.isWhole = false;
    this.ordered = [];
  }

  /** Read the first page; the turns that it has are as they are now. */
  async refresh() {
    const page = await this.page(null);
    const isFirst = this.entries.size === 0;
    this.forgetOpen(page.turns);
    for (const one of page.turns) this.entries.set(one.id, one);
    if (isFirst) this.end(page.next);
    this.sort();
  }

  /** Read the next page of those before. */
  async more() {
    if (this.isWhole) return;
    const page = await this.page(this.next);
    for (const one of page.turns) if (!this.entries.has(one.id)) this.entries.set(one.id, one);
    this.end(page.next);
    this.sort();
  }

  /** Read all turns of the last day, a page at a time; `onPage` is called after each. */
  async day(onPage) {
    while (!this.isWhole && !this.signal.aborted && this.entries.size < MOST) {
      const last = this.ordered.at(-1);
      if (last?.ended_at && lastOf(last) < Date.now() - DAY) return;
      await this.more();
      onPage();
      await breath();
    }
  }

  page(after) {
    return get("v1/turns", { ...this.query, limit: PAGE, after }, this.signal);
  }

  end(next) {
    this.next = next;
    this.isWhole = !next;
  }

  /** A turn that ran, and is not in a page that goes on to those that have ended, has ended too. */
  forgetOpen(turns) {
    if (turns.length && turns.every((one) => !one.ended_at)) return;
    const now = new Set(turns.map((one) => one.id));
    for (const [id, one] of this.entries)
      if (!one.ended_at && !now.has(id)) this.entries.delete(id);
  }

  sort() {
    const keyed = [...this.entries.values()].map((one) => [one.ended_at ? 1 : 0, lastOf(one), one]);
    keyed.sort((one, other) => one[0] - other[0] || other[1] - one[1]);
    this.ordered = keyed.map(([, , one]) => one);
  }
}
