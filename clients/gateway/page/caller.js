// Who uses the page: what the gateway says of the caller, and the token.

import { get, token } from "./api.js";
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
  const keys = h("button.link", { type: "button", onclick: forget }, "Forget token");
  fill(document.getElementById("who"), open, " ", token.get() ? keys : null);
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
      h("dt", null, "Gateway"),
      h("dd", null, `Perdure ${known.version ?? ""}`),
    ),
  );
}

function forget() {
  token.forget();
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

/** A form for the token, which stays in this tab. */
export function tokenForm(error, onToken) {
  const input = h("input", {
    type: "password",
    id: "token",
    autocomplete: "off",
    required: true,
    "aria-describedby": "token-hint",
  });
  const form = h(
    "form.card.narrow",
    null,
    h("h1", null, "Who are you?"),
    token.get() ? problem(error) : null,
    h(
      "div.field",
      null,
      h("label", { for: "token" }, "Token"),
      input,
      h(
        "span.hint",
        { id: "token-hint" },
        "The bearer token that the gateway printed at its start, or that its operator gave you. " +
          "It stays in this tab.",
      ),
    ),
    h("div.buttons", null, h("button.primary", { type: "submit" }, "Continue")),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!input.value.trim()) return;
    token.set(input.value.trim());
    onToken();
  });
  return form;
}
