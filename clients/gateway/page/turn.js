// One turn: its limits, what it waits for, its trace, and beside that its task and its answer, or
// the details of the row that is chosen.

import { buttons, topUp } from "./actions.js";
import { Problem, breath, followTurn, get, path, repeat } from "./api.js";
import { inTemporal, may } from "./caller.js";
import { decision } from "./decide.js";
import { Delegates, PRIVATE } from "./delegates.js";
import { panelOf } from "./detail.js";
import { announce, fill, h, once, reconcile } from "./dom.js";
import { problem } from "./dialogs.js";
import { Feeder } from "./feeder.js";
import { finder } from "./find.js";
import { ago, clock, plural } from "./format.js";
import { emptyLimits, limits } from "./limits.js";
import { Overview } from "./overview.js";
import { badge, turnLink } from "./parts.js";
import { reason } from "./reasons.js";
import { Rows } from "./rows.js";
import { TEXT, Trace } from "./trace.js";

const SOON = 250;
const SHARE = 4; // the status of a long turn takes time: at most a fourth of it
const EVERY = 8_000;
const A_WHILE = 2_000;
const TICK = 1_000;
const A_FRAME = 16; // rows that are opened before the next picture
const OPENED = 6; // a small tree of delegates is shown open

export function turn(main, signal, id) {
  const view = new View(main, id, signal);
  view.start();
  return { find: () => view.finder.focus(), back: () => view.unselect() };
}

class View {
  constructor(main, id, signal) {
    this.main = main;
    this.id = id;
    this.signal = signal;
    this.status = null;
    this.unsettled = [];
    this.effects = [];
    this.timer = null;
    this.took = 0;
    this.asked = null;
    this.shown = new Promise((resolve) => (this.isShown = resolve));
    this.selected = null;
    this.overview = new Overview(id);
    this.finder = finder(
      () => [{ trace: this.trace, rows: this.rows }, ...this.delegates.traces()],
      (rows, row) => this.reveal(rows, row),
    );
    this.parts = {
      head: h("div", null, crumbs(id), h("div.skeleton.title"), h("div.skeleton")),
      trouble: h("div"),
      limits: h("div", null, emptyLimits()),
      line: h("p.connection", { role: "status" }),
      waits: h("div.waits"),
      trace: h("div.log", { "aria-busy": "true" }, skeletonRows()),
      panel: h("div", { hidden: true }),
    };
    this.begin();
    this.lay();
  }

  /** Begin the trace, at first and when the turn was reset. */
  begin() {
    this.delegates = new Delegates(this.signal, {
      onSelect: (row) => this.select(row),
      onRead: () => this.prices(),
    });
    this.rows = new Rows({
      label: "Trace",
      onSelect: (row) => this.select(row),
      onChild: (row, inside, rows) => this.delegates.open(row, inside, rows),
    });
    this.trace = new Trace({
      onRow: (row, isNew) => this.draw(row, isNew),
      onText: (row, text) => {
        if (row.kind === "model") this.overview.add(text);
        this.rows.draw(row, false);
      },
    });
    this.feeder = new Feeder(
      (event) => this.see(event),
      () => this.rows.flush(this.trace),
    );
    this.isPast = true;
    this.drawn = null;
  }

  lay() {
    const { head, trouble, line, waits, trace, panel, limits: spending } = this.parts;
    const { about, facts, effects } = this.overview;
    const all = h("button", { type: "button", "aria-pressed": "false" }, "Open all");
    all.addEventListener("click", () => {
      const open = all.getAttribute("aria-pressed") === "false";
      all.setAttribute("aria-pressed", String(open));
      fill(all, open ? "Close all" : "Open all");
      this.openAll(open);
    });
    fill(
      this.main,
      head,
      trouble,
      spending,
      waits,
      h(
        "div.run",
        null,
        h("aside", { "aria-label": "About the turn", tabindex: 0 }, panel, about, effects, facts),
        h("div.wide", null, h("div.toolbar", null, this.finder.element, all), trace, line),
      ),
    );
  }

  start() {
    repeat(TICK, this.signal, () => {
      if (this.status?.outcome === null && this.trace.began) {
        this.rows.tick();
        this.rows.flush(this.trace);
      }
    });
    repeat(EVERY, this.signal, async () => {
      if (this.status?.outcome == null) await this.refresh();
    });
    this.watchOnceShown();
  }

  /** Follow the turn once its head is shown: its events keep the gateway and the page busy. */
  async watchOnceShown() {
    await Promise.race([this.shown, new Promise((resolve) => setTimeout(resolve, A_WHILE))]);
    if (!this.signal.aborted) this.watch();
  }

  async watch() {
    try {
      await followTurn(this.id, {
        query: { include: PRIVATE, delegates: "running" },
        signal: this.signal,
        onMessage: (event) => this.feeder.push(event),
        onConnection: (is) =>
          fill(this.parts.line, is ? "" : "The connection is lost; the page tries again …"),
      });
    } catch (error) {
      if (error instanceof Problem && error.code === "STALE_CURSOR") {
        this.begin();
        this.watch();
        return;
      }
      if (!(error instanceof Problem)) throw error;
      this.fail(error, this.parts.line);
    }
  }

  draw(row, isNew) {
    this.rows.draw(row, isNew);
    if (row.key === "task") this.overview.ask(row.text, row.name, row.began);
    if (row.kind === "model" && !this.isPast) this.overview.say(row);
    if (row.kind === "child" && !isNew) this.delegates.read(row.turn);
  }

  see(event) {
    if (event.turn && TEXT.has(event.kind)) {
      this.trace.sayBelow(event);
      this.delegates.sayBelow(event);
      return;
    }
    this.trace.see(event);
    if (this.rows.element.parentElement !== this.parts.trace && this.trace.rows.length)
      fill(this.parts.trace, this.rows.element);
    if (event.kind === "caught_up") this.catchUp();
    else if (event.cursor && !this.isPast) this.soon();
    if (event.kind === "turn_ended" && !this.isPast)
      announce(`The turn has ended: ${event.outcome}`);
  }

  /** What happened before the page was opened has been shown. */
  catchUp() {
    this.isPast = false;
    this.parts.trace.setAttribute("aria-busy", "false");
    if (!this.trace.rows.length)
      fill(this.parts.trace, h("p.muted", null, "Nothing has happened yet."));
    this.overview.say(this.trace.draft ?? this.trace.final);
    const isBehind = this.status && (this.status.outcome === null) === (this.trace.ended !== null);
    if (isBehind) this.soon();
    this.prices();
    this.openSmall();
    this.prepare();
  }

  /** Show the delegates of a small tree at once. */
  openSmall() {
    const children = this.trace.rows.filter((one) => one.kind === "child");
    if (children.length > OPENED || !matchMedia("(min-width: 60rem)").matches) return;
    for (const child of children) this.rows.entries.get(child).element.open = true;
  }

  /** Make what is folded when there is time, so that the browser's own search finds it. */
  async prepare() {
    for (const entry of this.rows.entries.values()) {
      if (this.signal.aborted) return;
      await new Promise((resolve) => (window.requestIdleCallback ?? setTimeout)(resolve));
      entry.prepare();
    }
  }

  async openAll(open) {
    const all = [{ rows: this.rows }, ...this.delegates.traces()];
    const entries = all.flatMap(({ rows }) => [...rows.entries.values()]);
    for (const [place, entry] of entries.entries()) {
      if (open) entry.prepare();
      if (entry.summary) entry.element.open = open;
      await breath();
      if (place % A_FRAME === 0) await new Promise(requestAnimationFrame); // those in sight cost
    }
  }

  select(row) {
    this.selected = row;
    fill(
      this.parts.panel,
      panelOf(row, () => this.unselect()),
    );
    this.parts.panel.hidden = false;
    this.overview.about.hidden = true;
  }

  unselect() {
    if (!this.selected) return;
    this.selected = null;
    this.parts.panel.hidden = true;
    this.overview.about.hidden = false;
    const marked = this.parts.trace.querySelector("[aria-current]");
    marked?.removeAttribute("aria-current");
    marked?.focus();
  }

  /** Show a row that was found, where it is and beside the list. */
  reveal(rows, row) {
    const { element } = rows.entries.get(row);
    for (let one = element.parentElement; one; one = one.parentElement?.closest("details"))
      if (one.tagName === "DETAILS") one.open = true;
    if (element.tagName === "DETAILS" && !matchMedia("(min-width: 60rem)").matches)
      element.open = true;
    element.scrollIntoView({ block: "center" });
    requestAnimationFrame(() => rows.select(row));
  }

  soon() {
    this.timer ??= setTimeout(() => this.refresh(), Math.max(SOON, this.took * SHARE));
  }

  async refresh() {
    clearTimeout(this.timer);
    this.timer = null;
    const began = performance.now();
    this.asked = began;
    try {
      const status = await get(path("turns", this.id), {}, this.signal);
      if (this.asked !== began) return; // a later question has a later answer
      this.status = status;
      this.took = performance.now() - began;
      this.show();
      this.isShown();
      const [unsettled, effects] = await Promise.all([
        this.unsettledCalls(status),
        this.knownEffects(status),
      ]);
      if (this.asked !== began) return;
      this.unsettled = unsettled;
      this.effects = effects;
      this.show();
    } catch (error) {
      this.isShown();
      if (!this.signal.aborted && !(error.status === 0 && this.status))
        this.fail(error, this.parts.trouble);
    }
  }

  /** The turn's own calls of unknown outcome, once it has ended, as waits for a person. */
  async unsettledCalls({ id, outcome, unsettled }) {
    if (!outcome || !unsettled) return [];
    const result = await get(path("turns", id, "result"), {}, this.signal);
    return result.unsettled.map((call) => ({
      kind: "settlement",
      turn_id: id,
      call: { ...call, is_unknown: true },
    }));
  }

  /** What is known of the effects of the turn, once it has ended. */
  async knownEffects({ id, outcome }) {
    if (!outcome) return [];
    return (await get(path("turns", id, "effects"), {}, this.signal)).effects;
  }

  /** Show a problem: alone, if there is nothing else to show. */
  fail(error, element) {
    if (this.status || error.status !== 404) fill(element, problem(error));
    else fill(this.main, crumbs(this.id), problem(error));
  }

  show() {
    const { status, parts } = this;
    document.title = `${status.task || status.id} · Perdure`;
    fill(parts.trouble);
    const onDone = () => this.refresh();
    once(parts.head, headOf(status), () => heading(status, () => this.status, onDone));
    reconcile(
      parts.waits,
      [...status.waits, ...this.unsettled],
      (one) => one.call?.token ?? `${one.turn_id} ${one.kind} ${one.call?.call_id}`,
      (one) => waitOf(one, () => this.status, onDone),
    );
    fill(parts.limits, limits(status));
    this.overview.show(status, this.effects, onDone);
    if (!this.trace.task && status.task) this.overview.ask(status.task, "Task", null);
    this.prices();
  }

  /** Show the money and the steps of the delegates in their rows. */
  prices() {
    const all = [{ trace: this.trace, rows: this.rows }, ...this.delegates.traces()];
    const visit = (node) => {
      for (const child of node.children) {
        for (const { trace, rows } of all) {
          const row = trace.byKey.get(`child ${child.id}`);
          if (!row || row.cost === child.spent.usd) continue;
          row.cost = child.spent.usd;
          rows.draw(row, false);
        }
        visit(child);
      }
    };
    if (this.status && !this.isPast) visit(this.status);
    for (const { trace, rows } of all) rows.flush(trace);
  }
}

function skeletonRows() {
  return Array.from({ length: 6 }, () => h("div.skeleton"));
}

/** A status without what changes all the time, which the head of the page does not show. */
function headOf(status) {
  const { spent, since, step, steps, children, last_text, ...shown } = status;
  return shown;
}

function crumbs(id) {
  return h("p.crumbs", null, h("a", { href: "#/turns" }, "Turns"), " / ", h("span.id", null, id));
}

function heading(status, latest, onDone) {
  const ui = inTemporal(status.id, status.run_id);
  return h(
    "div",
    null,
    crumbs(status.id),
    h("div.head", null, h("h1", null, status.task || status.id), buttons(status, latest, onDone)),
    h(
      "p.muted.facts-line",
      null,
      badge(status.state, status.outcome),
      " ",
      status.last_agent && status.last_agent !== status.agent
        ? `${status.agent} → ${status.last_agent}`
        : status.agent,
      status.outcome
        ? [" · ended ", ago(status.ended_at)]
        : status.waits.length
          ? ""
          : ` · ${status.doing}`,
      status.children.length ? ` · ${plural(status.children.length, "delegate")}` : "",
      ui
        ? [
            " · ",
            h("a", { href: ui, target: "_blank", rel: "noopener noreferrer" }, "Temporal UI ↗"),
          ]
        : null,
    ),
    status.error ? reason(status.error) : null,
  );
}

function waitOf(wait, latest, onDone) {
  const { id } = latest();
  const elsewhere = wait.turn_id === id ? null : ["In the delegate ", turnLink(wait.turn_id)];
  if (wait.call)
    return decision({
      turnId: wait.turn_id,
      call: wait.call,
      since: wait.since,
      about: elsewhere,
      onDone,
    });
  const pays = ["budget", "iterations"].includes(wait.kind) && wait.turn_id === id && may("budget");
  const pay = async () => {
    await topUp(latest());
    onDone();
  };
  return h(
    "article.card.decision",
    null,
    h("h3", null, `Waits for ${wait.kind}`),
    elsewhere ? h("p.small", null, elsewhere) : null,
    h("p", null, wait.reason),
    wait.until ? h("p.small.muted", null, "Until ", clock(wait.until)) : null,
    pays
      ? h("div.buttons", null, h("button.primary", { type: "button", onclick: pay }, "Top up"))
      : null,
  );
}
