// A session as a chat: its messages, its running turn, its queue, and a form for the next message.

import { Problem, follow, followTurn, get, path, post, randomId, repeat } from "./api.js";
import { may } from "./caller.js";
import { Conversation } from "./conversation.js";
import { decision } from "./decide.js";
import { announce, fill, h, reconcile, words } from "./dom.js";
import { ask, problem } from "./dialogs.js";
import { money } from "./format.js";
import { limits } from "./limits.js";
import { bubble, resultsOf } from "./messages.js";
import { badge, folded, turnLink } from "./parts.js";

const EVERY = 5_000;
const SOON = 200;

/** The money that a session has spent; null if it is none because the prices are unknown. */
function spentOf(status, turns) {
  const isUnknown = turns.some((one) => one.outcome && one.cost === null);
  return isUnknown && Number(status.spent.usd) === 0 ? null : status.spent.usd;
}

export function session(main, signal, id) {
  new Chat(main, id, signal).start();
}

class Chat {
  constructor(main, id, signal) {
    this.id = id;
    this.signal = signal;
    this.timer = null;
    this.turn = null;
    this.follows = null;
    this.shown = 0;
    this.parts = {
      head: h("div"),
      trouble: h("div"),
      said: h("div.log", { role: "log", "aria-label": "Messages" }),
      running: h("div.log", { "aria-label": "Running turn", role: "log" }),
      waits: h("div.waits"),
      queue: h("div.log"),
    };
    const { head, trouble, said, running, waits, queue } = this.parts;
    fill(
      main,
      h(
        "div.chat",
        null,
        head,
        trouble,
        said,
        running,
        waits,
        queue,
        may("start") ? this.form() : null,
      ),
    );
  }

  start() {
    this.refresh();
    this.watch().catch((error) => fill(this.parts.trouble, problem(error)));
    repeat(EVERY, this.signal, () => this.turn && this.look());
  }

  async watch() {
    await follow(path("sessions", this.id, "events"), {
      signal: this.signal,
      onMessage: () => {
        this.timer ??= setTimeout(() => this.refresh(), SOON);
      },
    });
  }

  async refresh() {
    clearTimeout(this.timer);
    this.timer = null;
    try {
      const [status, { messages }, { turns }] = await Promise.all([
        get(path("sessions", this.id), {}, this.signal),
        get(path("sessions", this.id, "messages"), {}, this.signal),
        get(path("sessions", this.id, "turns"), {}, this.signal),
      ]);
      this.status = status;
      fill(this.parts.trouble);
      this.show(status, messages, turns);
    } catch (error) {
      if (!this.signal.aborted) fill(this.parts.trouble, problem(error));
    }
  }

  show(status, messages, turns) {
    const { parts } = this;
    document.title = `${status.id} · Perdure`;
    reconcile(
      parts.head,
      [{ ...status, turns }],
      () => "head",
      () => this.heading(status, turns),
    );
    const texts = messages.filter((one) => one.role !== "system");
    const results = resultsOf(texts);
    reconcile(
      parts.said,
      texts.filter((one) => one.role !== "tool").map((message, place) => ({ message, place })),
      (one) => String(one.place),
      (one) => bubble(one.message, results),
    );
    const open = turns.findLast((one) => one.outcome === null);
    this.run(status.turn ?? open?.turn_id ?? null);
    reconcile(
      parts.queue,
      status.queue,
      (one) => one.id,
      (one) => this.queued(one),
    );
    if (texts.length > this.shown) {
      this.shown = texts.length;
      this.toEnd();
    }
  }

  /** Change the view, and stay at its end if that is shown. */
  staying(change) {
    const isAtEnd = window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
    change();
    if (isAtEnd) this.toEnd();
  }

  toEnd() {
    window.scrollTo({ top: document.body.scrollHeight });
  }

  heading(status, turns) {
    return h(
      "div",
      null,
      h(
        "p.crumbs",
        null,
        h("a", { href: "#/sessions" }, "Sessions"),
        " / ",
        h("span.id", null, status.id),
      ),
      h("div.head", null, h("h1", null, status.id), badge(status.state)),
      h("p.muted", null, status.last_agent || status.agent),
      h(
        "div.card",
        null,
        folded(
          h(
            "span",
            null,
            `Turns: ${turns.length} · spent ${money(spentOf(status, turns))}`,
            status.budget?.usd ? ` of ${money(status.budget.usd)}` : "",
          ),
          () => [
            limits({
              spent: { ...status.spent, usd: spentOf(status, turns) },
              budget: status.budget,
            }),
            h(
              "ul.tree",
              null,
              turns.map((one) =>
                h(
                  "li",
                  null,
                  h(
                    "div.line",
                    null,
                    h("span", null, badge("running", one.outcome), " ", turnLink(one.turn_id)),
                    h("span.amount", null, one.outcome ? money(one.cost) : "…"),
                  ),
                ),
              ),
            ),
          ],
        ),
      ),
      this.actions(status),
    );
  }

  actions(status) {
    const open = status.state !== "closed";
    const waits = status.state === "idle" && status.queue.length > 0;
    const offered = [
      [waits && may("start"), "Read the queue", () => this.change("resume", {})],
      [open && status.budget?.usd && may("budget"), "Top up", () => this.topUp()],
      [status.state === "running" && may("control"), "Interrupt", () => this.interrupt()],
      [open && may("control"), "Close", () => this.close()],
    ];
    return h(
      "div.buttons.actions",
      { role: "group", "aria-label": "Actions" },
      offered
        .filter(([is]) => is)
        .map(([, label, onclick]) =>
          h(label === "Close" ? "button.danger" : "button", { type: "button", onclick }, label),
        ),
    );
  }

  queued(message) {
    const takeOut = () => this.change("unqueue", { id: message.id });
    return h(
      "article.message.user.queued",
      null,
      h("header", null, "Waits for the next turn"),
      words(message.text),
      may("control") ? h("button.link", { type: "button", onclick: takeOut }, "Take out") : null,
    );
  }

  async change(what, body) {
    try {
      await post(path("sessions", this.id, what), body);
      this.refresh();
    } catch (error) {
      fill(this.parts.trouble, problem(error));
    }
  }

  async topUp() {
    const { budget, spent } = this.status;
    await ask({
      title: "Top up",
      action: "Add",
      about: [
        "The turns of the session may spend this in addition.",
        "If it waits for that, it goes on at once.",
      ],
      fields: [
        {
          name: "usd",
          label: "Add US dollars",
          inputmode: "decimal",
          hint: `Now ${money(budget.usd)}, of which ${money(spent.usd)} are spent.`,
        },
      ],
      send: ({ usd }) =>
        post(path("sessions", this.id, "add-budget"), { budget: { usd: usd.replace(",", ".") } }),
    });
    this.refresh();
  }

  /** Show the running turn while it runs. */
  run(turnId) {
    if (turnId === this.turn) return;
    this.follows?.abort();
    this.turn = turnId;
    fill(this.parts.running);
    fill(this.parts.waits);
    if (!turnId) return;
    this.follows = new AbortController();
    const signal = AbortSignal.any([this.signal, this.follows.signal]);
    const conversation = new Conversation(this.parts.running, { asked: "Message" });
    followTurn(turnId, {
      query: { include: ["task", "arguments", "results", "errors"] },
      signal,
      onMessage: (event) => {
        this.staying(() => conversation.see(event));
        if (["wait_began", "wait_ended", "decided", "child_told", "caught_up"].includes(event.kind))
          this.look();
      },
    }).catch((error) => {
      if (!(error instanceof Problem && error.status === 404))
        fill(this.parts.trouble, problem(error));
    });
  }

  /** Ask what the running turn waits for. */
  async look() {
    try {
      const { waits } = await get(path("turns", this.turn), {}, this.signal);
      const card = (one) =>
        decision({
          turnId: one.turn_id,
          call: one.call,
          since: one.since,
          onDone: () => this.look(),
        });
      this.staying(() =>
        reconcile(
          this.parts.waits,
          waits.filter((one) => one.call),
          (one) => one.call.token,
          card,
        ),
      );
    } catch {
      // the stream of the turn shows what is wrong
    }
  }

  form() {
    const text = h("textarea", {
      rows: 1,
      dir: "auto",
      "aria-label": "Message",
      placeholder: "Message",
    });
    const busy = h(
      "select",
      { "aria-label": "If a turn runs" },
      [
        ["queue", "Queue it"],
        ...(may("control")
          ? [
              ["steer", "Steer the turn"],
              ["interrupt", "Interrupt the turn"],
            ]
          : []),
      ].map(([value, label]) => h("option", { value }, label)),
    );
    const button = h("button.primary", { type: "submit" }, "Send");
    const trouble = h("div");
    const form = h(
      "form.compose",
      null,
      trouble,
      text,
      h(
        "div.buttons",
        null,
        h("span.small.muted", null, "A message starts a turn, which costs money. If one runs: "),
        busy,
        button,
      ),
    );
    let key = randomId();
    const send = async (event) => {
      event.preventDefault();
      if (!text.value.trim()) return;
      button.disabled = true;
      try {
        await post(
          path("sessions", this.id, "messages"),
          { text: text.value, if_busy: busy.value },
          key,
        );
        text.value = "";
        key = randomId();
        fill(trouble);
        announce("Sent");
        this.refresh();
      } catch (error) {
        fill(trouble, problem(error));
      }
      button.disabled = false;
      text.focus();
    };
    form.addEventListener("submit", send);
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
    });
    return form;
  }

  async interrupt() {
    await ask({
      title: "Interrupt the turn",
      danger: true,
      action: "Interrupt",
      about: [
        "The running turn is cancelled; what it has spent stays spent.",
        "Messages in the queue wait for the next one.",
      ],
      fields: [{ name: "reason", label: "Reason" }],
      send: (values) => post(path("sessions", this.id, "interrupt"), values),
    });
    this.refresh();
  }

  async close() {
    await ask({
      title: "Close the session",
      danger: true,
      action: "Close",
      about: [
        "It takes no more messages, and cannot be opened again. A running turn goes on to its end.",
      ],
      fields: [{ name: "reason", label: "Reason" }],
      send: (values) => post(path("sessions", this.id, "close"), values),
    });
    this.refresh();
  }
}
