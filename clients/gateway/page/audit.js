// Who has done what, when and through what: the last acts first. The gateway reads the histories of
// all runs of the time for it, so it is asked when the view opens, and when somebody says so.

import { get } from "./api.js";
import { announce, fill, h, reconcile } from "./dom.js";
import { problem } from "./dialogs.js";
import { clock, plural } from "./format.js";
import { hashOf } from "./parts.js";

const MOST = 200;
const TIMES = [
  ["1", "The last hour"],
  ["24", "The last day"],
  ["168", "The last week"],
  ["720", "The last 30 days"],
];
const VIEWS = { turn: "turns", session: "sessions", batch: "batches", schedule: "schedules" };

export function audit(main, signal, _, query) {
  return new Audit(main, signal, new URLSearchParams(query));
}

class Audit {
  constructor(main, signal, named) {
    this.signal = signal;
    this.reading = new AbortController();
    this.trouble = h("div");
    this.list = h("ul.rows", { "aria-label": "Acts" });
    this.below = h("p.muted.small");
    this.people = h("datalist", { id: "people" });
    this.by = field("Person", "Anybody", named.get("by"), "people");
    this.subject = field("Data subject", "Any data subject", named.get("subject"));
    this.hours = h(
      "select",
      { "aria-label": "Time" },
      TIMES.map(([hours, text]) =>
        h("option", { value: hours, selected: hours === (named.get("hours") ?? "24") }, text),
      ),
    );
    const again = h("button", { type: "submit" }, "Read again");
    const form = h(
      "form.filters",
      { "aria-label": "Filters" },
      this.by,
      this.people,
      this.subject,
      this.hours,
      again,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.read();
    });
    form.addEventListener("change", () => this.read());
    signal.addEventListener("abort", () => this.reading.abort());
    fill(
      main,
      h("div.head", null, h("h1", null, "Audit")),
      form,
      this.trouble,
      this.list,
      this.below,
    );
    this.read();
  }

  find() {
    this.by.focus();
  }

  async read() {
    this.reading.abort();
    this.reading = new AbortController();
    const { signal } = this.reading;
    const asked = {
      by: this.by.value.trim(),
      subject: this.subject.value.trim(),
      hours: this.hours.value,
    };
    history.replaceState(null, "", addressOf(asked));
    fill(this.trouble);
    fill(this.below, "Reading…");
    this.list.setAttribute("aria-busy", "true");
    try {
      const { hours, ...filters } = asked;
      const since = new Date(Date.now() - Number(hours) * 3_600_000).toISOString();
      const query = { ...filters, since, newest: true, limit: MOST };
      const answer = await get("v1/audit", query, signal);
      this.show(answer);
    } catch (error) {
      if (signal.aborted || this.signal.aborted) return;
      fill(this.below);
      fill(this.trouble, problem(error));
    }
    this.list.removeAttribute("aria-busy");
  }

  show({ entries, has_more: hasMore }) {
    const keys = new Map();
    const keyed = entries.map((entry) => ({ ...entry, key: keyOf(entry, keys) }));
    reconcile(this.list, keyed, (entry) => entry.key, row);
    suggest(this.people, entries);
    const acts = plural(entries.length, "act");
    const text = hasMore ? `The last ${acts}; there are earlier ones.` : `${acts}.`;
    fill(this.below, entries.length ? text : "Nothing was done in this time.");
    announce(entries.length ? text : "Nothing was done");
  }
}

function field(label, placeholder, value, list = null) {
  return h("input", {
    type: "search",
    "aria-label": label,
    placeholder,
    autocomplete: "off",
    value: value ?? "",
    list,
  });
}

function addressOf({ by, subject, hours }) {
  const query = new URLSearchParams();
  if (by) query.set("by", by);
  if (subject) query.set("subject", subject);
  if (hours !== "24") query.set("hours", hours);
  const text = query.toString();
  return `#/audit${text ? `?${text}` : ""}`;
}

/** What tells an act from others: two may have the same time. */
function keyOf({ time, act, kind, id }, known) {
  const name = [time, act, kind, id].join("\n");
  const number = known.get(name) ?? 0;
  known.set(name, number + 1);
  return `${name}\n${number}`;
}

function row({ time, act, kind, id, by, via, on_behalf_of: root, detail, problem: unread }) {
  const who = by ?? (root ? `on behalf of ${root}` : "no name");
  return h(
    "li.row",
    null,
    h(
      "span.first",
      null,
      h("strong", null, act.replaceAll("_", " ")),
      h("span.id", null, kind, " ", VIEWS[kind] ? placeOf(kind, id) : id),
    ),
    h("span.numbers", null, h("span", null, dated(time))),
    h(
      "span.second.muted",
      null,
      who,
      via ? ` · ${via}` : "",
      detail ? ` · ${detail}` : "",
      unread ? [" · ", h("span.bad", null, unread)] : null,
    ),
  );
}

function placeOf(kind, id) {
  return h("a", { href: hashOf(VIEWS[kind], id) }, id);
}

/** A time with its date, unless that is today's. */
function dated(moment) {
  const day = new Date(moment);
  const isToday = day.toDateString() === new Date().toDateString();
  return [isToday ? "" : `${day.toLocaleDateString()} `, clock(moment)];
}

function suggest(people, entries) {
  const names = [...new Set(entries.map((entry) => entry.by).filter(Boolean))].sort();
  fill(
    people,
    names.map((name) => h("option", { value: name })),
  );
}
