// Dialogs with a form, and problems in words.

import { announce, fill, h } from "./dom.js";

/** A problem with its title, what happened, and what to do. */
export function problem(error) {
  return h(
    "div.problem",
    { role: "alert" },
    h("strong", null, error.title ?? "Something went wrong"),
    h("p", null, error.message),
    (error.errors?.length > 1 ? error.errors : []).map((one) =>
      h("p.small", null, `${one.pointer}: ${one.detail}`),
    ),
    error.advice ? h("p.advice", null, error.advice) : null,
  );
}

/**
 * Ask for values and send them. Return what `send` returns, or null if the dialog is closed.
 *
 * Each field has a name and a label, and may have a type, a value, a hint and options. `more` has
 * the title and the fields of a part that is folded. A problem is shown in the dialog, which stays
 * open.
 */
export function ask({ title, about = [], fields = [], more = null, action, danger = false, send }) {
  return new Promise((resolve) => {
    const all = [...fields, ...(more?.fields ?? [])];
    const trouble = h("div");
    const confirm = h(danger ? "button.danger" : "button.primary", { type: "submit" }, action);
    const form = h(
      "form",
      { method: "dialog", novalidate: true },
      h("h2", { id: "dialog-title" }, title),
      about.map((one) => (one instanceof Node ? one : h("p", null, one))),
      fields.map(row),
      more ? h("details.more", null, h("summary", null, more.title), more.fields.map(row)) : null,
      trouble,
      h(
        "div.buttons",
        null,
        h("button", { type: "button", onclick: () => dialog.close() }, "Back"),
        confirm,
      ),
    );
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    let result = null;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      confirm.disabled = true;
      try {
        result = (await send(valuesOf(form, all))) ?? true;
        dialog.close();
        announce(`${title}: done`);
      } catch (error) {
        fill(trouble, problem(error));
        confirm.disabled = false;
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("input, textarea, select") ?? confirm).focus();
  });
}

/** Show something in a dialog, until it is closed. */
export function show(title, content) {
  const close = h("button.primary", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = h(
    "dialog",
    { "aria-labelledby": "dialog-title" },
    h("h2", { id: "dialog-title" }, title),
    content,
    h("div.buttons", null, close),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
}

let fieldNumber = 0;

function row({ name, label, type = "text", value = "", hint, options = [], ...rest }) {
  const id = `field-${(fieldNumber += 1)}`;
  const described = hint ? { "aria-describedby": `${id}-hint` } : {};
  const control = controlOf(type, { id, name, ...described, ...rest }, value, options);
  const text = h("label", { for: id }, label);
  const hinted = hint ? h("span.hint", { id: `${id}-hint` }, hint) : null;
  return type === "checkbox"
    ? h("div.field.check", null, control, text, hinted)
    : h("div.field", null, text, control, hinted);
}

function controlOf(type, attributes, value, options) {
  if (type === "textarea") {
    const area = h("textarea", { rows: 4, dir: "auto", ...attributes });
    area.value = value;
    return area;
  }
  if (type === "select") {
    return h(
      "select",
      attributes,
      options.map(([one, label]) => h("option", { value: one, selected: one === value }, label)),
    );
  }
  if (type === "checkbox") return h("input", { type, checked: Boolean(value), ...attributes });
  const given = h("input", { type, autocomplete: "off", ...attributes });
  given.value = value;
  return given;
}

function valuesOf(form, fields) {
  return Object.fromEntries(
    fields.map(({ name, type }) => {
      const control = form.elements.namedItem(name);
      return [name, type === "checkbox" ? control.checked : control.value.trim()];
    }),
  );
}
