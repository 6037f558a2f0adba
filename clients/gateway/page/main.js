// The router: a view for each address after "#".

import { token } from "./api.js";
import { load, tokenForm } from "./caller.js";
import { fill, h } from "./dom.js";
import { problem } from "./dialogs.js";
import { inbox, watchCount } from "./inbox.js";
import { session } from "./session.js";
import { sessions } from "./sessions.js";
import { turn } from "./turn.js";
import { turns } from "./turns.js";

const main = document.getElementById("main");
let shown = new AbortController();
let counting = new AbortController();
let place = "";

const VIEWS = [
  [/^#\/turns$/, turns, "Turns"],
  [/^#\/turns\/(.+)$/, turn, "Turn"],
  [/^#\/inbox$/, inbox, "Inbox"],
  [/^#\/sessions$/, sessions, "Sessions"],
  [/^#\/sessions\/(.+)$/, session, "Session"],
];

function route() {
  if (location.hash === "#main") return;
  place = location.hash || "#/turns";
  shown.abort();
  shown = new AbortController();
  mark();
  const [pattern, view, title] = VIEWS.find(([one]) => one.test(place)) ?? VIEWS[0];
  const id = pattern.exec(place)?.[1];
  document.title = `${title} · Perdure`;
  window.scrollTo({ top: 0 });
  view(main, shown.signal, id && idOf(id));
  main.focus({ preventScroll: true });
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

function unauthenticated(error) {
  shown.abort();
  counting.abort();
  for (const one of document.querySelectorAll("dialog")) one.close();
  fill(main, tokenForm(error, start));
  main.querySelector("input").focus();
}

async function start(isFromAddress = false) {
  try {
    await load(isFromAddress);
  } catch (error) {
    if (error.status !== 401) {
      const again = h("button.primary", { type: "button", onclick: () => start() }, "Try again");
      fill(
        main,
        h("h1", null, "Perdure"),
        problem(error),
        h(
          "div.buttons",
          null,
          again,
          token.get()
            ? h(
                "button",
                {
                  type: "button",
                  onclick: () => {
                    token.forget();
                    start();
                  },
                },
                "Forget token",
              )
            : null,
        ),
      );
    }
    return;
  }
  counting.abort();
  counting = new AbortController();
  watchCount(counting.signal, () => place === "#/inbox");
  route();
}

addEventListener("unauthenticated", (event) => unauthenticated(event.detail));
addEventListener("hashchange", () => (token.takeFromAddress() ? start(true) : route()));
await start(token.takeFromAddress());
