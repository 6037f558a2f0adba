// The calls of all turns that wait for a person: the first to expire first, each with what was
// asked and what the model said; and what was decided lately, and by whom.

import { get, path, post, repeat } from "./api.js";
import { may } from "./caller.js";
import { contextOf } from "./context.js";
import { decidedList, lookBack, lookUp } from "./decided.js";
import { decision, origin } from "./decide.js";
import { announce, fill, h, reconcile } from "./dom.js";
import { ask, problem } from "./dialogs.js";
import { ago, plural, until } from "./format.js";
import { json, turnLink } from "./parts.js";

const EVERY = 3_000;
const WHOLE = 110;

export function inbox(main, signal) {
  return new Inbox(main, signal);
}

const keyOf = (one) => `${one.id} ${one.call.token}`;
const canChoose = ({ call }) => may("decide") && !call.is_unknown && !call.is_question;

class Inbox {
  constructor(main, signal) {
    this.signal = signal;
    this.waiting = [];
    this.open = null;
    this.chosen = new Set();
    this.trouble = h("div");
    this.empty = h("p.muted", { hidden: true }, "No call waits for a decision.");
    this.bulk = h("div.toolbar.bulk", { role: "group", "aria-label": "Several at once" });
    this.list = h("div.waits.inbox", { role: "group", "aria-label": "Calls that wait" });
    this.jobs = h("div.waits", { role: "group", "aria-label": "Calls that are done elsewhere" });
    this.decided = h("section", { "aria-label": "Decided", hidden: true });
    fill(
      main,
      h("div.head", null, h("h1", null, "Inbox"), h("p.muted.small.keys-hint", null, KEYS)),
      this.trouble,
      this.empty,
      this.bulk,
      this.list,
      this.jobs,
      this.decided,
    );
    repeat(EVERY, signal, () => this.refresh());
    lookBack(signal).then(() => this.showDecided());
  }

  async refresh() {
    try {
      const { approvals } = await get("v1/approvals", { limit: 200 }, this.signal);
      fill(this.trouble);
      const all = approvals.map(({ turn, call }) => ({
        id: turn.id,
        agent: turn.agent,
        task: turn.task,
        call,
      }));
      reconcile(
        this.jobs,
        all.filter(({ call }) => call.is_job),
        (one) => `${one.id} ${one.call.call_id}`,
        elsewhere,
      );
      const waiting = all
        .filter(({ call }) => !call.is_job)
        .sort((one, other) => Date.parse(one.call.expires_at) - Date.parse(other.call.expires_at));
      this.noteGone(waiting);
      this.waiting = waiting;
      count(waiting.length);
      this.show();
    } catch (error) {
      if (!this.signal.aborted) fill(this.trouble, problem(error));
    }
  }

  /** Look up what became of the calls that wait no longer. */
  noteGone(waiting) {
    const now = new Set(waiting.map(keyOf));
    for (const one of this.waiting) {
      if (now.has(keyOf(one))) continue;
      this.chosen.delete(keyOf(one));
      lookUp(one, this.signal).then(() => this.showDecided());
    }
  }

  show() {
    const { waiting, list } = this;
    this.empty.hidden = waiting.length > 0;
    if (!waiting.some((one) => keyOf(one) === this.open))
      this.open = waiting.length ? keyOf(waiting[this.place ?? 0] ?? waiting.at(-1)) : null;
    this.place = Math.max(
      0,
      waiting.findIndex((one) => keyOf(one) === this.open),
    );
    reconcile(
      list,
      waiting.map((one) => ({
        ...one,
        isOpen: keyOf(one) === this.open,
        isChosen: this.chosen.has(keyOf(one)),
      })),
      keyOf,
      (one) => (one.isOpen ? this.whole(one) : this.brief(one)),
    );
    this.showBulk();
  }

  showDecided() {
    const all = decidedList();
    this.decided.hidden = !all;
    fill(this.decided, h("h2", null, "Decided"), all);
  }

  box(one) {
    if (!canChoose(one)) return null;
    const box = h("input", {
      type: "checkbox",
      checked: this.chosen.has(keyOf(one)),
      "aria-label": `Choose ${one.call.tool} of ${one.id}`,
    });
    box.addEventListener("change", () => {
      if (box.checked) this.chosen.add(keyOf(one));
      else this.chosen.delete(keyOf(one));
      this.showBulk();
    });
    return box;
  }

  /** A call with all that a decision needs. */
  whole(one) {
    return decision({
      turnId: one.id,
      call: one.call,
      about: origin(one),
      box: this.box(one),
      context: contextOf(one, this.signal),
      onDone: () => setTimeout(() => this.refresh(), 800),
    });
  }

  /** A call in a line, with buttons if all of its arguments are seen. */
  brief(one) {
    const { call } = one;
    const isSeen = call.arguments.length <= WHOLE;
    const open = h(
      "button.link.opener",
      { type: "button", onclick: () => this.openCard(keyOf(one)) },
      h("code", null, call.tool),
    );
    const card = h(
      "article.card.decision.brief-card",
      { "aria-label": `Call of ${call.tool} of ${one.id} waits for you` },
      this.box(one),
      open,
      h(
        "code.brief",
        { dir: "auto" },
        isSeen ? call.arguments : `${call.arguments.slice(0, WHOLE)}…`,
      ),
      h(
        "span.small.muted.origin",
        null,
        `${one.agent} · `,
        turnLink(one.id),
        one.task ? ` · ${one.task}` : "",
      ),
      h("span.small.muted", null, call.expires_at ? `expires ${until(call.expires_at)}` : ""),
      canChoose(one) && isSeen
        ? [
            this.quick(one, "deny", "Deny", "button.danger"),
            this.quick(one, "approve", "Approve", "button"),
          ]
        : h("button", { type: "button", onclick: () => this.openCard(keyOf(one)) }, "Open"),
    );
    return card;
  }

  quick(one, what, label, tag) {
    const send = async (event) => {
      event.target.disabled = true;
      try {
        await decide(one, what, "");
        announce(`${one.call.tool}: ${what === "approve" ? "approved" : "denied"}`);
        await this.refresh();
      } catch (error) {
        event.target.disabled = false;
        event.target.closest("article").append(problem(error));
      }
    };
    return h(tag, { type: "button", onclick: send }, label);
  }

  openCard(key, { focus = true } = {}) {
    this.open = key;
    this.show();
    const card = [...this.list.children].find((one) => one.dataset.key === key);
    card?.scrollIntoView({ block: "nearest" });
    if (focus) (card?.querySelector("h3") ?? card)?.focus();
  }

  showBulk() {
    const able = this.waiting.filter(canChoose);
    const chosen = able.filter((one) => this.chosen.has(keyOf(one)));
    this.bulk.hidden = able.length < 2;
    const state = `${able.length} ${chosen.map(keyOf).join()}`;
    if (this.bulk.state === state) return;
    this.bulk.state = state;
    const all = h("button", { type: "button", onclick: () => this.choose(able) }, "Choose all");
    const none = h("button", { type: "button", onclick: () => this.choose([]) }, "Choose none");
    fill(
      this.bulk,
      h("span", null, `${chosen.length} of ${plural(able.length, "call")} chosen`),
      chosen.length < able.length ? all : null,
      chosen.length ? none : null,
      chosen.length
        ? [
            h(
              "button.danger",
              { type: "button", onclick: () => this.all(chosen, "deny") },
              "Deny these",
            ),
            h(
              "button.primary",
              { type: "button", onclick: () => this.all(chosen, "approve") },
              "Approve these",
            ),
          ]
        : null,
    );
  }

  choose(those) {
    this.chosen = new Set(those.map(keyOf));
    this.show();
  }

  /** Decide several calls in the same way, each with its own token. */
  async all(those, what) {
    const verb = what === "approve" ? "Approve" : "Deny";
    await ask({
      title: `${verb} ${plural(those.length, "call")}`,
      about: [
        h(
          "ul.chosen",
          null,
          those.map((one) =>
            h(
              "li",
              null,
              h("code", null, one.call.tool),
              " ",
              h("code.brief", null, one.call.arguments),
            ),
          ),
        ),
      ],
      fields: [{ name: "reason", label: "Reason", hint: "The same for all of them." }],
      action: verb,
      danger: what === "deny",
      send: async ({ reason }) => {
        const failed = [];
        for (const one of those) {
          try {
            await decide(one, what, reason);
            this.chosen.delete(keyOf(one));
          } catch (error) {
            failed.push(`${one.id}: ${error.message}`);
          }
        }
        if (failed.length) throw new Error(`Not decided: ${failed.join("; ")}`);
      },
    });
    this.refresh();
  }

  /** Move between calls, and to the buttons of the one that is open. */
  key(event) {
    const { waiting } = this;
    const move = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (move && waiting.length) {
      const place = Math.min(waiting.length - 1, Math.max(0, (this.place ?? 0) + move));
      this.openCard(keyOf(waiting[place]));
      return true;
    }
    const card = [...this.list.children].find((one) => one.dataset.key === this.open);
    const name = { a: "Approve", d: "Deny", e: "Edit arguments" }[event.key];
    if (name)
      [...(card?.querySelectorAll("button") ?? [])]
        .find((one) => one.textContent === name)
        ?.focus();
    else if (event.key === "x") card?.querySelector("input[type=checkbox]")?.click();
    else return false;
    return true;
  }
}

/** A call whose result comes from elsewhere: there is nothing to decide. */
function elsewhere({ call, ...turn }) {
  return h(
    "article.card",
    { "aria-label": `Call of ${call.tool} is done elsewhere` },
    h(
      "div.line",
      null,
      h("h3", null, h("code", null, call.tool), " is done elsewhere"),
      h("span.small.muted", null, ago(call.since), " · ", `given up ${until(call.expires_at)}`),
    ),
    h("p.small", null, origin(turn)),
    h("p.small", null, call.note),
    json(call.arguments),
  );
}

const KEYS = "Keys: j and k move, a and d go to Approve and Deny, e edits, x chooses.";

function decide(one, what, reason) {
  const { call_id, token } = one.call;
  return post(path("turns", one.id, what), { call_id, token, reason });
}

let last = 0;

/** Show the number of calls that wait beside the link. */
export function count(number) {
  const element = document.getElementById("waiting");
  element.hidden = number === 0;
  fill(
    element,
    String(number),
    h("span.unseen", null, number === 1 ? " call waits" : " calls wait"),
  );
  if (number > last)
    announce(number === 1 ? "A call waits for a decision" : `${number} calls wait for a decision`);
  last = number;
}

/** Keep the number current on all views. */
export function watchCount(signal, isInbox) {
  repeat(10_000, signal, async () => {
    if (isInbox()) return;
    try {
      const { approvals } = await get("v1/approvals", { limit: 200 }, signal);
      count(approvals.filter(({ call }) => !call.is_job).length);
    } catch {
      // the view itself shows what is wrong
    }
  });
}
