// One turn: its conversation, what it waits for, its money, its delegates and its timeline.

import { buttons, topUp } from "./actions.js";
import { Problem, follow, get, path, repeat } from "./api.js";
import { inTemporal, may } from "./caller.js";
import { Conversation } from "./conversation.js";
import { decision } from "./decide.js";
import { announce, fill, h, reconcile } from "./dom.js";
import { problem } from "./dialogs.js";
import { effectList } from "./effects.js";
import { ago, clock, duration, money, plural, seconds } from "./format.js";
import { badge, bars, folded, turnLink } from "./parts.js";
import { Timeline } from "./timeline.js";

const PRIVATE = ["task", "arguments", "results", "errors"];
const SOON = 250;
const SHARE = 4; // the status of a long turn takes time: at most a fourth of it
const EVERY = 8_000;

export function turn(main, signal, id) {
  const view = new View(main, id, signal);
  view.start();
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
    this.timeline = new Timeline();
    this.parts = {
      head: h("div"),
      trouble: h("div"),
      line: h("p.connection", { role: "status" }),
      waits: h("div.waits"),
      log: h("div.log", { role: "log", "aria-label": "Conversation", "aria-busy": "true" }),
      money: h("section.card", { "aria-label": "Spending" }),
      tree: h("section.card", { "aria-label": "Delegates", hidden: true }),
      effects: h("section.card", { "aria-label": "Effects", hidden: true }),
      facts: h("section.card", { "aria-label": "Details" }),
      timeline: h("div"),
    };
    const { head, trouble, line, waits, log, money: spending, tree, effects, facts } = this.parts;
    const when = h(
      "section.card",
      { "aria-label": "Timeline" },
      folded(h("h2", null, "Timeline"), () => this.parts.timeline),
    );
    when.firstElementChild.addEventListener("toggle", () =>
      this.timeline.draw(this.parts.timeline),
    );
    fill(
      main,
      head,
      trouble,
      h(
        "div.columns",
        null,
        h("div.wide", null, waits, log, line),
        h("aside", { "aria-label": "About the turn" }, spending, tree, effects, when, facts),
      ),
    );
  }

  start() {
    repeat(EVERY, this.signal, async () => {
      if (this.status?.outcome == null) await this.refresh();
    });
    this.watch();
  }

  async watch() {
    this.conversation = new Conversation(this.parts.log);
    try {
      await follow(path("turns", this.id, "events"), {
        query: { include: PRIVATE },
        signal: this.signal,
        onMessage: (event) => this.see(event),
        onConnection: (is) =>
          fill(this.parts.line, is ? "" : "The connection is lost; the page tries again …"),
      });
    } catch (error) {
      if (error instanceof Problem && error.code === "STALE_CURSOR") {
        fill(this.parts.log);
        this.timeline = new Timeline();
        this.watch();
        return;
      }
      if (!(error instanceof Problem)) throw error;
      this.fail(error, this.parts.line);
    }
  }

  see(event) {
    const log = this.parts.log;
    const follows = atTheEnd() && log.getAttribute("aria-busy") === "false";
    if (event.kind === "caught_up") log.setAttribute("aria-busy", "false");
    this.conversation.see(event);
    this.timeline.see(event);
    if (follows) window.scrollTo({ top: document.body.scrollHeight });
    if (event.cursor) this.soon();
    if (event.kind === "turn_ended" && log.getAttribute("aria-busy") === "false")
      announce(`The turn has ended: ${event.outcome}`);
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
      const unsettled = await this.unsettledCalls(status);
      const effects = await this.knownEffects(status);
      if (this.asked !== began) return; // a later question has a later answer
      this.status = status;
      this.unsettled = unsettled;
      this.effects = effects;
      this.took = performance.now() - began;
      this.show();
    } catch (error) {
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

  /** Make the content of an element again only when what it shows has changed. */
  once(element, shown, make) {
    reconcile(
      element,
      [shown],
      () => "all",
      () => h("div", null, make()),
    );
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
    this.once(parts.head, headOf(status), () => heading(status, () => this.status, onDone));
    reconcile(
      parts.waits,
      [...status.waits, ...this.unsettled],
      (one) => one.call?.token ?? `${one.turn_id} ${one.kind} ${one.call?.call_id}`,
      (one) => waitOf(one, () => this.status, onDone),
    );
    fill(parts.money, h("h2", null, "Spending"), bars(status));
    parts.tree.hidden = !status.children.length;
    this.once(parts.tree, status.children, () => [h("h2", null, "Delegates"), tree(status)]);
    parts.effects.hidden = !this.effects.length;
    this.once(parts.effects, this.effects, () => [
      h("h2", null, "Effects"),
      effectList(this.id, this.effects, onDone),
    ]);
    const { spent, doing, since, ...fixed } = status;
    this.once(parts.facts, fixed, () => [h("h2", null, "Details"), facts(status)]);
    if (parts.timeline.isConnected) this.timeline.draw(parts.timeline);
  }
}

function atTheEnd() {
  return window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
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
    h("div.head", null, h("h1", null, status.task || status.id)),
    h(
      "p.muted",
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
      ui
        ? [
            " · ",
            h("a", { href: ui, target: "_blank", rel: "noopener noreferrer" }, "Temporal UI ↗"),
          ]
        : null,
    ),
    status.error
      ? h(
          "div.problem",
          null,
          h("strong", null, status.error.code),
          h("p", null, status.error.message),
        )
      : null,
    buttons(status, latest, onDone),
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
  return h(
    "article.card.decision",
    null,
    h("h3", null, `Waits for ${wait.kind}`),
    elsewhere ? h("p.small", null, elsewhere) : null,
    h("p", null, wait.reason),
    wait.until ? h("p.small.muted", null, "Until ", clock(wait.until)) : null,
    pays
      ? h(
          "div.buttons",
          null,
          h(
            "button.primary",
            {
              type: "button",
              onclick: async () => {
                await topUp(latest());
                onDone();
              },
            },
            "Top up",
          ),
        )
      : null,
  );
}

/** The delegates, with the money of each. */
function tree(node) {
  return h(
    "ul.tree",
    null,
    node.children.map((child) =>
      h(
        "li",
        null,
        h(
          "div.line",
          null,
          h("span", null, badge(child.state, child.outcome), " ", turnLink(child.id, child.agent)),
          h("span.amount", null, money(child.spent.usd)),
        ),
        h(
          "p.small.muted",
          null,
          child.task,
          " · ",
          plural(child.steps, "step"),
          " · ",
          duration(seconds(child.spent.time)),
        ),
        child.children.length ? tree(child) : null,
      ),
    ),
  );
}

function facts(status) {
  const from = status.forked_from;
  const rows = [
    ["Started", status.started_at ? ago(status.started_at) : null],
    ["Ended", status.ended_at ? ago(status.ended_at) : null],
    ["Outcome unknown", status.unsettled ? plural(status.unsettled, "call") : null],
    ["Deadline", status.deadline ? clock(status.deadline) : null],
    ["Goes on from", from ? [turnLink(from.turn_id), `, step ${from.step}`] : null],
    [
      "Labels",
      Object.entries(status.labels).map(([name, value]) => [
        h("span.label", null, `${name}=${value}`),
        " ",
      ]),
    ],
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
