// Who uses the page: what the gateway says of the caller, and the token.

import { get, token } from "./api.js";
import { fill, h } from "./dom.js";
import { problem } from "./dialogs.js";

let known = { may: [], subject: "", tenant: null, temporal_ui: null };

/** Ask the gateway who the caller is. A link with the token of a tenant would have others work as
 * that tenant, so only tokens without one are taken from an address. */
export async function load(isFromAddress) {
  known = await get("v1/about");
  if (isFromAddress && known.tenant) {
    token.forget();
    known = await get("v1/about");
  }
  const who = document.getElementById("who");
  const leave = h("button.link", { type: "button", onclick: forget }, "Forget token");
  fill(
    who,
    known.tenant ? `${known.subject} · ${known.tenant}` : known.subject,
    " ",
    token.get() ? leave : null,
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
