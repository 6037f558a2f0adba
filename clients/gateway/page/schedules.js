// Schedules: their list, and one with its times, its turns, and what people did to it.

import { get, path, post, repeat } from "./api.js";
import { may } from "./caller.js";
import { fill, h, once, reconcile } from "./dom.js";
import { ask, problem } from "./dialogs.js";
import { ago, clock, money, until } from "./format.js";
import { limits } from "./limits.js";
import { badge, hashOf, labels, turnLink } from "./parts.js";
import { reasonOf } from "./reasons.js";
import { crumbsTo, resourceHead, resourceList, resourceRow } from "./resources.js";

const EVERY = 5_000;

export function schedules(main, signal) {
  resourceList(main, signal, {
    title: "Schedules",
    where: "v1/schedules",
    field: "schedules",
    none: "No schedules.",
    row: (entry) =>
      resourceRow({
        mark: badge(entry.is_paused ? "paused" : entry.state),
        link: h("a.task", { href: hashOf("schedules", entry.id) }, entry.id),
        numbers: [
          h("code", null, entry.cron),
          h(
            "span.muted",
            null,
            entry.next.length && !entry.is_paused ? `next ${until(entry.next[0])}` : "no next",
          ),
        ],
        second: [
          `${entry.agent} · ${entry.timezone} · ${entry.task}`,
          entry.running.length ? ` · ${entry.running.length} run` : "",
          entry.reason ? ` · ${entry.reason}` : "",
        ],
      }),
  });
}

export function schedule(main, signal, id) {
  const head = h("div", null, h("div.skeleton.title"));
  const trouble = h("div");
  const facts = h("section.card", { "aria-label": "Facts" });
  const meters = h("div");
  const list = h("ul.rows", { "aria-label": "Turns" });
  const none = h("p.muted", { hidden: true }, "None has started yet.");
  const all = h(
    "p.small",
    null,
    h("a", { href: `#/turns?schedule=${encodeURIComponent(id)}` }, "All its turns"),
  );
  fill(
    main,
    crumbsTo("schedules", "Schedules", id),
    head,
    trouble,
    meters,
    h(
      "div.run",
      null,
      h("aside", { "aria-label": "About the schedule" }, facts),
      h("div.wide", null, h("h2", null, "Its last turns"), none, list, all),
    ),
  );
  const refresh = async () => {
    try {
      const status = await get(path("schedules", id), {}, signal);
      fill(trouble);
      once(head, status, () => heading(status, refresh));
      once(facts, status, () => factsOf(status));
      fill(meters, status.total ? limits({ spent: status.spent, budget: status.total }) : null);
      reconcile(list, status.last, (one) => `${one.id} ${one.at}`, slot);
      none.hidden = status.last.length > 0;
    } catch (error) {
      if (!signal.aborted) fill(trouble, problem(error));
    }
  };
  repeat(EVERY, signal, refresh);
}

function slot(one) {
  return resourceRow({
    mark: badge(one.is_skipped ? "skipped" : (one.state ?? "ended"), one.outcome),
    link: one.is_skipped
      ? h("span.task", null, "no turn")
      : h("a.task", { href: hashOf(one.batch ? "batches" : "turns", one.id) }, one.id),
    numbers: [
      h("span.amount", null, one.outcome ? money(one.spent) : ""),
      h("span.muted", null, ago(one.at)),
    ],
    second: [
      one.error
        ? [h("span.bad", { title: one.error.message }, reasonOf(one.error.code)), " · "]
        : null,
      one.is_by_hand ? "by hand" : "by the schedule",
      one.by ? `, by ${one.by}` : "",
      one.message ? ` · ${one.message}` : "",
    ],
  });
}

function heading(status, onDone) {
  const offered = [
    [
      may("start"),
      "Run now",
      () =>
        simple(
          status,
          "run",
          "Run now",
          "A turn starts at once, outside the schedule. It costs money.",
        ),
    ],
    [
      !status.is_paused && may("control"),
      "Pause",
      () => reasoned(status, "pause", "Pause", "No more turns start until it is resumed."),
    ],
    [
      status.is_paused && may("control"),
      "Resume",
      () => simple(status, "resume", "Resume", "Turns start again at their times."),
    ],
    [
      status.running.length > 0 && may("control"),
      "Cancel",
      () =>
        reasoned(
          status,
          "cancel",
          "Cancel",
          "Its turns that run are cancelled, and no more start until it is resumed.",
        ),
    ],
  ];
  return h(
    "div",
    null,
    resourceHead(status.id, offered, onDone),
    h(
      "p.muted",
      null,
      badge(status.is_paused ? "paused" : status.state),
      ` ${status.agent} · ${status.task}`,
    ),
    status.reason ? h("p.small", null, status.reason, status.by ? ` (${status.by})` : "") : null,
  );
}

function factsOf(status) {
  const rows = [
    ["Times", h("code", null, `${status.cron} ${status.timezone}`)],
    ["Next", status.next.slice(0, 3).map((at) => h("div", null, clock(at), ` ${until(at)}`))],
    ["Runs", status.running.map((id) => h("div", null, turnLink(id)))],
    [
      "Session",
      status.session ? h("a", { href: hashOf("sessions", status.session) }, status.session) : null,
    ],
    ["Started", String(status.started)],
    ["Skipped", status.skipped ? String(status.skipped) : null],
    ["Missed", status.missed ? String(status.missed) : null],
    ["Labels", labels(status.labels)],
    ["Created", ago(status.created_at)],
  ];
  const log = status.log.map((one) =>
    h(
      "li.small",
      null,
      `${one.verb} by ${one.by || "nobody named"} `,
      ago(one.at),
      one.reason ? `: ${one.reason}` : "",
    ),
  );
  return h(
    "div",
    null,
    h("h2", null, "Facts"),
    h(
      "dl",
      null,
      rows
        .filter(([, value]) => value && value.length !== 0)
        .map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
    ),
    log.length ? [h("h2", null, "What people did"), h("ul", null, log)] : null,
  );
}

function simple({ id }, what, title, about) {
  return ask({
    title,
    about: [about],
    action: title,
    send: () => post(path("schedules", id, what), {}),
  });
}

function reasoned({ id }, what, title, about) {
  return ask({
    title: `${title} the schedule`,
    about: [about],
    fields: [{ name: "reason", label: "Reason" }],
    action: title,
    danger: what === "cancel",
    send: (values) => post(path("schedules", id, what), values),
  });
}
