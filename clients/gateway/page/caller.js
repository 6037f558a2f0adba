// Who uses the page: what the gateway says of the caller, and the token.

import { get, post, token } from "./api.js";
import { fill, h } from "./dom.js";
import { problem, show } from "./dialogs.js";

let known = { may: [], subject: "", tenant: null, temporal_ui: null };

/** Ask the gateway who the caller is. A link with the token of a tenant would have others work as
 * that tenant, so only tokens without one are taken from an address. */
export async function load(isFromAddress) {
  known = await get("v1/about");
  if (isFromAddress && known.tenant) {
    token.forget();
    known = await get("v1/about");
  }
  const name = known.tenant ? `${known.subject} · ${known.tenant}` : known.subject;
  const open = h("button.link", { type: "button", onclick: about, title: "What you may do" }, name);
  fill(document.getElementById("who"), open, " ", leave());
}

const MAY = {
  read: "look at everything",
  start: "start turns, and send messages to sessions",
  control: "steer, interrupt and cancel",
  decide: "approve, deny, answer and settle calls",
  budget: "give and add money",
  override: "choose models and priorities",
};

/** Who is logged in, and what they may do. */
function about() {
  show(
    "Who you are",
    h(
      "dl",
      null,
      h("dt", null, "Name"),
      h("dd", null, known.subject, h("span.small.muted", null, ", recorded with what you decide")),
      h("dt", null, "Tenant"),
      h("dd", null, known.tenant ?? "none: you see all turns"),
      h("dt", null, "You may"),
      h(
        "dd",
        null,
        h(
          "ul",
          null,
          known.may.map((one) => h("li", null, MAY[one] ?? one)),
        ),
      ),
      known.session_ends_at && [
        h("dt", null, "Logged in until"),
        h("dd", null, new Date(known.session_ends_at).toLocaleString()),
      ],
      h("dt", null, "Gateway"),
      h("dd", null, `Perdure ${known.version ?? ""}`),
    ),
  );
}

/** The button that ends what this browser knows of the caller; null if that is not its business. */
function leave() {
  if (known.session_ends_at)
    return h("button.link", { type: "button", onclick: logOut }, "Log out");
  if (token.get()) return h("button.link", { type: "button", onclick: forget }, "Forget token");
  return null;
}

function forget() {
  token.forget();
  location.reload();
}

async function logOut() {
  await post("ui/logout", "{}");
  location.reload();
}

export function may(permission) {
  return known.may.includes(permission);
}

/** The address of a turn in Temporal's web UI; null if it is not known. */
export function inTemporal(turnId, runId) {
  if (!known.temporal_ui) return null;
  return `${known.temporal_ui}/${encodeURIComponent(turnId)}/${encodeURIComponent(runId)}/timeline`;
}

/** What is shown if nobody is known: where to log in, if that is possible, or a form for the token,
 * which stays in this tab. */
export function tokenForm(error, onToken) {
  const input = h("input", {
    type: "password",
    id: "token",
    autocomplete: "off",
    required: true,
    "aria-describedby": "token-hint",
  });
  const field = h(
    "div.field",
    null,
    h("label", { for: "token" }, "Token"),
    input,
    h("span.hint", { id: "token-hint" }, `${hint(error)} It stays in this tab.`),
  );
  const go = h("button", { type: "submit" }, "Continue");
  if (!error.login) go.classList.add("primary");
  const rest = [field, h("div.buttons", null, go)];
  const form = h(
    "form.card.narrow",
    null,
    h("h1", null, "Who are you?"),
    token.get() ? problem(error) : null,
    error.login
      ? [
          h("div.buttons", null, logIn(error)),
          h("details.more", null, h("summary", null, "Use a token"), rest),
        ]
      : rest,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!input.value.trim()) return;
    token.set(input.value.trim());
    onToken();
  });
  return form;
}

function hint(error) {
  return error.login
    ? "A bearer token that the gateway's operator, or your identity provider, gave you."
    : "The bearer token that the gateway printed at its start, or that its operator gave you.";
}

/** The button that leads to the login, which comes back to this view. */
function logIn(error) {
  const page = location.pathname.endsWith("/chat.html") ? "chat.html" : "";
  const address = `${error.login}?to=${encodeURIComponent(page + location.hash)}`;
  return h(
    "button.primary",
    { type: "button", onclick: () => location.assign(address) },
    "Log in",
  );
}
