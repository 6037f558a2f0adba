// The router: a view for each address after "#", and the keys that hold on all views.

import { token } from "./api.js";
import { audit } from "./audit.js";
import { batch, batches } from "./batches.js";
import { load, tokenForm } from "./caller.js";
import { fill, h } from "./dom.js";
import { problem } from "./dialogs.js";
import { inbox, watchCount } from "./inbox.js";
import { shortcuts } from "./keys.js";
import { schedule, schedules } from "./schedules.js";
import { session } from "./session.js";
import { sessions } from "./sessions.js";
import { turn } from "./turn.js";
import { turns } from "./turns.js";

const main = document.getElementById("main");
let shown = new AbortController();
let counting = new AbortController();
let place = "";
let view = null;

const VIEWS = [
  [/^#\/turns$/, turns, "Turns"],
  [/^#\/turns\/(.+)$/, turn, "Turn"],
  [/^#\/inbox$/, inbox, "Inbox"],
  [/^#\/sessions$/, sessions, "Sessions"],
  [/^#\/sessions\/(.+)$/, session, "Session"],
  [/^#\/batches$/, batches, "Batches"],
  [/^#\/batches\/(.+)$/, batch, "Batch"],
  [/^#\/schedules$/, schedules, "Schedules"],
  [/^#\/schedules\/(.+)$/, schedule, "Schedule"],
  [/^#\/audit$/, audit, "Audit"],
];

function route() {
  if (location.hash === "#main") return;
  const [address, query = ""] = split(location.hash || "#/turns");
  place = address;
  shown.abort();
  shown = new AbortController();
  closeDialogs();
  mark();
  const [pattern, make, title] = VIEWS.find(([one]) => one.test(place)) ?? VIEWS[0];
  const id = pattern.exec(place)?.[1];
  document.title = `${title} · Perdure`;
  window.scrollTo({ top: 0 });
  view = make(main, shown.signal, id && idOf(id), query);
  main.focus({ preventScroll: true });
}

/** The path and the query of an address after "#". */
function split(hash) {
  const mark = hash.indexOf("?");
  return mark < 0 ? [hash] : [hash.slice(0, mark), hash.slice(mark + 1)];
}

function idOf(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function mark() {
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = place === link.hash || place.startsWith(`${link.hash}/`);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function closeDialogs() {
  for (const one of document.querySelectorAll("dialog")) one.close();
}

function unauthenticated(error) {
  shown.abort();
  counting.abort();
  closeDialogs();
  fill(main, tokenForm(error, start));
  main.querySelector("input, button.primary").focus();
}

async function start(isFromAddress = false) {
  try {
    await load(isFromAddress);
  } catch (error) {
    if (error.status !== 401) fill(main, ...unavailable(error));
    return;
  }
  counting.abort();
  counting = new AbortController();
  watchCount(counting.signal, () => place === "#/inbox");
  route();
}

/** What is shown if nobody knows who the caller is. */
function unavailable(error) {
  const again = h("button.primary", { type: "button", onclick: () => start() }, "Try again");
  const forget = () => {
    token.forget();
    start();
  };
  const other = h("button", { type: "button", onclick: forget }, "Forget token");
  return [
    h("h1", null, "Perdure"),
    problem(error),
    h("div.buttons", null, again, token.get() ? other : null),
  ];
}

addEventListener("unauthenticated", (event) => unauthenticated(event.detail));
addEventListener("hashchange", () => (token.takeFromAddress() ? start(true) : route()));
addEventListener("keydown", (event) => shortcuts(event, view));
await start(token.takeFromAddress());
