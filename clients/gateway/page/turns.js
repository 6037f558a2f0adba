// The list of turns: why they failed, what they cost, and the last day in numbers.

import { get, path, repeat } from "./api.js";
import { startTurn } from "./actions.js";
import { may } from "./caller.js";
import { day } from "./day.js";
import { fill, h, reconcile } from "./dom.js";
import { problem } from "./dialogs.js";
import { admits, asked, filterBar, filtersOf } from "./filters.js";
import { ago, count, duration, money, plural } from "./format.js";
import { Turns } from "./listing.js";
import { badge, hashOf, labels } from "./parts.js";
import { reasonOf } from "./reasons.js";

const EVERY = 4_000;
const MOST_ASKED = 20;
const FIRST = 60;
const MORE = 40;
const PAUSE = 120;

export function turns(main, signal, _, query) {
  return new List(main, signal, filtersOf(query));
}

class List {
  constructor(main, signal, filters) {
    this.signal = signal;
    this.filters = filters;
    this.live = new Map();
    this.room = FIRST;
    this.shown = [];
    this.trouble = h("div");
    this.day = h("section.card.day", { "aria-label": "The last day", hidden: true });
    this.list = h("ul.rows", { "aria-label": "Turns" });
    this.below = h("p.muted.small");
    this.agents = h("datalist", { id: "agents" });
    this.bar = filterBar(filters, () => this.change());
    const start = h("button.primary", { type: "button" }, "Start a turn");
    start.addEventListener("click", () => startTurn(namesOf(this.agents)));
    fill(
      main,
      h("div.head", null, h("h1", null, "Turns"), may("start") ? start : null),
      this.bar.element,
      this.agents,
      this.trouble,
      this.day,
      h("div", null, skeletons()),
      this.list,
      this.below,
    );
    this.skeleton = main.querySelector(".skeleton").parentElement;
    this.sentinel();
    this.ask();
    repeat(EVERY, signal, async () => {
      await this.refresh();
      await this.cost();
    });
  }

  find() {
    this.bar.focus();
  }

  /** Begin anew with the filters of the gateway. */
  ask() {
    this.key = JSON.stringify(asked(this.filters));
    this.reading?.abort();
    this.reading = new AbortController();
    this.turns = new Turns(
      asked(this.filters),
      AbortSignal.any([this.signal, this.reading.signal]),
    );
  }

  /** Show others, once somebody has stopped typing. */
  change() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.room = FIRST;
      if (this.key === JSON.stringify(asked(this.filters))) {
        this.show();
        return;
      }
      this.ask();
      this.refresh();
    }, PAUSE);
  }

  async refresh() {
    const { turns } = this;
    const isFirst = turns.entries.size === 0;
    try {
      await turns.refresh();
      if (turns !== this.turns) return;
      fill(this.trouble);
      this.show();
      if (isFirst) await turns.day(() => turns === this.turns && this.show());
    } catch (error) {
      if (!turns.signal.aborted) fill(this.trouble, problem(error));
    }
  }

  /** Show more rows as soon as the end of the list is near. */
  sentinel() {
    const seen = new IntersectionObserver(async ([one]) => {
      if (!one.isIntersecting || this.signal.aborted) return;
      if (this.room < this.shown.length) this.room += MORE;
      else if (this.turns.isWhole || !this.turns.entries.size) return;
      else {
        await this.turns.more().catch(() => {});
        this.choose();
      }
      this.showRows();
      seen.unobserve(this.below);
      seen.observe(this.below);
    });
    seen.observe(this.below);
    this.signal.addEventListener("abort", () => seen.disconnect());
  }

  show() {
    this.skeleton.remove();
    this.choose();
    suggest(this.agents, this.turns.ordered);
    day(this.day, this.shown, this.turns.isWhole, (reason) => this.bar.set({ reason }));
    this.showRows();
  }

  choose() {
    this.shown = this.turns.ordered.filter((one) => admits(one, this.filters));
  }

  showRows() {
    const entries = this.shown.slice(0, this.room).map((one) => {
      const live = one.outcome ? null : this.live.get(one.id);
      return live ? { ...one, live } : one;
    });
    reconcile(this.list, entries, (one) => one.id, row);
    fill(this.below, this.countOf(this.shown, entries));
  }

  countOf(shown, entries) {
    const { turns, filters } = this;
    const id =
      /^\S+$/.test(filters.q) && !shown.some((one) => one.id === filters.q) ? filters.q : "";
    const byId = id ? [" ", h("a", { href: hashOf("turns", id) }, `Open the turn ${id}`)] : null;
    if (!shown.length) return ["No turns. Start one, or show others.", byId];
    const left = turns.ordered.length - shown.length;
    return [
      entries.length < shown.length ? `${count(entries.length)} of ` : "",
      plural(shown.length, "turn"),
      left ? `, ${count(left)} left out` : "",
      turns.isWhole ? "" : "; there are earlier ones",
      byId,
    ];
  }

  /** Ask what the first turns that run have cost. */
  async cost() {
    const open = [...this.list.children].map((one) => one.item).filter((one) => !one.outcome);
    for (const one of open.slice(0, MOST_ASKED)) {
      if (this.signal.aborted) return;
      try {
        const { spent, steps, doing } = await get(path("turns", one.id), {}, this.signal);
        this.live.set(one.id, { usd: spent.usd, steps, doing });
      } catch {
        this.live.delete(one.id);
      }
    }
    if (!this.signal.aborted && this.live.size) this.showRows();
  }
}

function skeletons() {
  return Array.from({ length: 8 }, () => h("div.skeleton"));
}

function row(entry) {
  const steps = entry.steps ?? entry.live?.steps;
  const cost = entry.outcome ? entry.spent : entry.live?.usd;
  const took = entry.ended_at
    ? ` · took ${duration((new Date(entry.ended_at) - new Date(entry.started_at)) / 1000)}`
    : "";
  const isKnown = entry.outcome || entry.live;
  return h(
    "li.row",
    null,
    h(
      "span.first",
      null,
      badge(entry.state, entry.outcome),
      h("a.task", { href: hashOf("turns", entry.id) }, entry.task || entry.id),
    ),
    h(
      "span.numbers",
      null,
      h("span.amount", null, isKnown ? money(cost) : "…"),
      h("span.muted", null, ago(entry.ended_at ?? entry.started_at)),
    ),
    h(
      "span.second.muted",
      null,
      entry.error
        ? [h("span.bad", { title: entry.error.message }, reasonOf(entry.error.code)), " · "]
        : null,
      entry.agent,
      entry.version ? ` ${entry.version}` : "",
      entry.last_agent && entry.last_agent !== entry.agent ? ` → ${entry.last_agent}` : "",
      " · ",
      h("span.id", null, entry.id),
      steps === null || steps === undefined ? "" : ` · ${plural(steps, "step")}`,
      took,
      entry.waits_for ? ` · waits for ${entry.waits_for}` : "",
      entry.live?.doing && !entry.waits_for ? ` · ${entry.live.doing}` : "",
      entry.unsettled ? ` · ${plural(entry.unsettled, "call")} of unknown outcome` : "",
      entry.parent ? " · delegate" : "",
      " ",
      labels(entry.labels),
    ),
  );
}

function suggest(agents, found) {
  const names = [...new Set([...namesOf(agents), ...found.map((one) => one.agent)])]
    .filter(Boolean)
    .sort();
  if (names.join("\n") !== namesOf(agents).join("\n")) {
    fill(
      agents,
      names.map((name) => h("option", { value: name })),
    );
  }
}

function namesOf(agents) {
  return [...agents.children].map((one) => one.value);
}
