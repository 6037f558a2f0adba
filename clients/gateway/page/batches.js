// Batches: their list, and one with its progress, its money and its results.

import { follow, get, path, post, repeat } from "./api.js";
import { may } from "./caller.js";
import { fill, h, once, reconcile } from "./dom.js";
import { ask, problem } from "./dialogs.js";
import { ago, count, money, plural } from "./format.js";
import { limits } from "./limits.js";
import { badge, hashOf, labels } from "./parts.js";
import { reasonOf } from "./reasons.js";
import { crumbsTo, resourceHead, resourceList, resourceRow } from "./resources.js";

const EVERY = 3_000;
const MOST = 1_000;

export function batches(main, signal) {
  resourceList(main, signal, {
    title: "Batches",
    where: "v1/batches",
    field: "batches",
    none: "No batches.",
    row: (entry) =>
      resourceRow({
        mark: badge(entry.state ?? "terminated"),
        link: h("a.task", { href: hashOf("batches", entry.id) }, entry.id),
        numbers: [
          h("span.amount", null, `${count(entry.done + entry.failed)} of ${count(entry.total)}`),
          h("span.muted", null, ago(entry.ended_at ?? entry.started_at)),
        ],
        second: [
          progress(entry),
          entry.agent,
          entry.failed
            ? [" · ", h("span.bad", null, `${count(entry.failed)} without an answer`)]
            : "",
          entry.round > 1 ? ` · round ${entry.round}` : "",
        ],
      }),
  });
}

function progress({ done, failed, total }) {
  const part = (number, tone) => {
    const piece = h(`span.piece.${tone}`);
    piece.style.width = `${((number / Math.max(1, total)) * 100).toFixed(1)}%`;
    return piece;
  };
  return h("span.progress", { "aria-hidden": "true" }, part(done, "good"), part(failed, "bad"));
}

export function batch(main, signal, id) {
  const head = h("div", null, h("div.skeleton.title"));
  const trouble = h("div");
  const meters = h("div");
  const note = h("p.muted.small");
  const list = h("ul.rows", { "aria-label": "Results" });
  const results = new Map();
  fill(
    main,
    crumbsTo("batches", "Batches", id),
    head,
    trouble,
    meters,
    h("h2", null, "Results"),
    note,
    list,
  );
  const refresh = async () => {
    try {
      const status = await get(path("batches", id), {}, signal);
      fill(trouble);
      once(head, status, () => heading(status, refresh));
      fill(
        meters,
        limits({
          spent: { ...status.spent, usd: status.cost ?? status.spent.usd },
          budget: status.budget,
        }),
      );
      show();
    } catch (error) {
      if (!signal.aborted) fill(trouble, problem(error));
    }
  };
  const show = () => {
    const all = [...results.values()].sort(
      (one, other) => (one.error ? 0 : 1) - (other.error ? 0 : 1),
    );
    const failed = all.filter((one) => one.error).length;
    fill(
      note,
      `${plural(all.length, "task")} ended`,
      failed ? `, ${count(failed)} without an answer` : "",
      all.length > MOST ? `; the first ${count(MOST)} are shown` : "",
    );
    reconcile(list, all.slice(0, MOST), (one) => one.id, resultRow);
  };
  let timer = null;
  follow(path("batches", id, "results"), {
    signal,
    onMessage: (result) => {
      results.set(result.id, result);
      timer ??= setTimeout(() => {
        timer = null;
        show();
      }, 200);
    },
  }).catch((error) => fill(trouble, problem(error)));
  repeat(EVERY, signal, refresh);
}

function heading(status, onDone) {
  const isOpen = status.ended_at === null;
  const offered = [
    [isOpen && status.budget && may("budget"), "Top up", () => topUp(status)],
    [
      !isOpen && status.failed + status.not_started > 0 && may("start"),
      "Retry",
      () => retry(status),
    ],
    [isOpen && may("control"), "Cancel", () => cancel(status)],
  ];
  return h(
    "div",
    null,
    resourceHead(status.id, offered, onDone),
    h(
      "p.muted",
      null,
      badge(status.state),
      ` ${status.agent} · ${count(status.done + status.failed)} of `,
      `${plural(status.total, "task")} ended`,
      `, ${count(status.running)} run, ${count(status.pending)} are to begin`,
      status.waiting ? `, ${count(status.waiting)} wait` : "",
      " · ",
      h("a", { href: `#/turns?parent=${encodeURIComponent(status.id)}` }, "its turns"),
    ),
    status.reason ? h("p.small", null, status.reason) : null,
  );
}

function resultRow(result) {
  const output = typeof result.output === "string" ? result.output : JSON.stringify(result.output);
  return resourceRow({
    mark: badge("not started", result.outcome),
    link: h("a.task", { href: hashOf("turns", result.turn_id) }, result.id),
    numbers: h("span.amount", null, money(result.cost)),
    second: [
      result.error
        ? h("span.bad", { title: result.error.message }, reasonOf(result.error.code))
        : (output ?? "").slice(0, 200),
      " ",
      labels(result.labels ?? {}),
    ],
  });
}

function topUp({ id }) {
  return ask({
    title: "Top up",
    about: ["The batch may spend this in addition."],
    fields: [{ name: "usd", label: "Add US dollars", inputmode: "decimal" }],
    action: "Add",
    send: ({ usd }) =>
      post(path("batches", id, "add-budget"), { budget: { usd: usd.replace(",", ".") } }),
  });
}

function retry({ id, failed, not_started: left }) {
  return ask({
    title: "Retry the batch",
    about: [`${plural(failed + left, "task")} without an answer are run again, within the budget.`],
    action: "Retry",
    send: () => post(path("batches", id, "retry"), {}),
  });
}

function cancel({ id }) {
  return ask({
    title: "Cancel the batch",
    about: ["Its turns that run are cancelled, and no more are started. Results stay."],
    fields: [{ name: "reason", label: "Reason" }],
    action: "Cancel the batch",
    danger: true,
    send: (values) => post(path("batches", id, "cancel"), values),
  });
}
