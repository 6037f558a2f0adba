// A question of a model: its options as buttons, a text, or a form from its JSON schema; or a login
// that a server asks for.

import { fill, h, words } from "./dom.js";
import { isJson, until } from "./format.js";
import { problem } from "./dialogs.js";
import { json } from "./parts.js";

/**
 * The parts of a question: what is asked, and the fields of the answer. `send` is called with the
 * answer as JSON text, and `linkOf` returns where a person logs in, if that is asked for.
 */
export function question({ text, options, form, login, default: otherwise }, send, linkOf) {
  const shown = h(
    "div",
    null,
    words(text),
    otherwise === null || otherwise === undefined
      ? null
      : h("p.small.muted", null, "Without an answer in time: ", JSON.stringify(otherwise)),
  );
  if (login) return { shown, fields: loginOf(send, linkOf) };
  if (form) return { shown, fields: formOf(form, otherwise, send) };
  return { shown, fields: options.length ? optionsOf(options, send) : textOf(send) };
}

function optionsOf(options, send) {
  return h(
    "div.buttons.options",
    { role: "group", "aria-label": "Answers" },
    options.map((option) =>
      h("button", { type: "button", onclick: () => send(JSON.stringify(option)) }, option),
    ),
  );
}

function loginOf(send, linkOf) {
  const trouble = h("div");
  const fields = h("div");
  const ask = async () => {
    fill(trouble);
    try {
      const { url, subject, server, expires_at } = await linkOf();
      const opened = { href: url, target: "_blank", rel: "noopener noreferrer" };
      const note = `For ${subject} alone, who gives access by it. It expires ${until(expires_at)}.`;
      const link = h("p", null, h("a", opened, `Log in at ${server}`));
      fill(fields, link, h("p.small.muted", null, note));
    } catch (error) {
      fill(trouble, problem(error));
    }
  };
  const buttons = h(
    "div.buttons",
    null,
    h("button", { type: "button", onclick: () => send('"accept"') }, "It is done"),
    h("button.primary", { type: "button", onclick: ask }, "Get the link"),
  );
  fill(fields, buttons);
  return h("div", null, fields, trouble);
}

function textOf(send) {
  const area = h("textarea", { rows: 3, "aria-label": "Answer", required: true });
  return withButton([h("div.field", null, area)], () => send(JSON.stringify(area.value)));
}

function formOf(form, otherwise, send) {
  const required = new Set(form.required ?? []);
  const known = otherwise && typeof otherwise === "object" ? otherwise : {};
  const fields = Object.entries(form.properties).map(([name, schema]) => {
    const [field, isNullable] = withoutNull(schema);
    const value = known[name] ?? schema.default ?? field.default;
    return { name, isNullable, isRequired: required.has(name), ...fieldOf(name, field, value) };
  });
  const trouble = h("div");
  const answer = () => {
    const parts = [];
    for (const { name, read, isNullable, isRequired } of fields) {
      const written = read();
      if (written !== "" && !isJson(written)) {
        trouble.replaceChildren(problem(new Error(`${name} is not JSON.`)));
        return;
      }
      const value = written === "" && isNullable && isRequired ? "null" : written;
      if (value !== "") parts.push(`${JSON.stringify(name)}:${value}`);
    }
    send(`{${parts.join(",")}}`);
  };
  const rows = fields.map(({ name, input, note, isRequired, isNullable }) =>
    h(
      "label.field",
      null,
      h("span", null, name, isRequired && !isNullable ? "" : " (optional)"),
      input,
      note ? h("span.small.muted", null, note) : null,
    ),
  );
  return withButton([...rows, trouble], answer);
}

/** A form whose button, or the key Enter in a line, sends the answer. */
function withButton(rows, answer) {
  const onsubmit = (event) => {
    event.preventDefault();
    answer();
  };
  const button = h("button.primary", { type: "submit" }, "Answer");
  return h("form", { onsubmit, novalidate: true }, rows, h("div.buttons", null, button));
}

/** A schema that allows null, without that. */
function withoutNull(schema) {
  const kinds = (schema.anyOf ?? []).filter((kind) => kind.type !== "null");
  const isNullable = kinds.length === 1 && schema.anyOf.length === 2;
  return [isNullable ? { ...schema, ...kinds[0], anyOf: undefined } : schema, isNullable];
}

/** The input of a field, and how its value is read as JSON text; empty if nothing is entered. */
function fieldOf(name, schema, value) {
  const about = { "aria-label": name };
  const note = [schema.title === name ? null : schema.title, schema.description]
    .filter(Boolean)
    .join(": ");
  const known = value === undefined || value === null ? null : value;
  if (schema.enum && schema.enum.every((one) => typeof one !== "object")) {
    const input = h(
      "select",
      about,
      h("option", { value: "" }, "–"),
      schema.enum.map((one) =>
        h("option", { value: JSON.stringify(one), selected: one === known }, String(one)),
      ),
    );
    return { input, note, read: () => input.value };
  }
  if (schema.type === "boolean") {
    const input = h("input", { ...about, type: "checkbox", checked: known === true });
    return { input, note, read: () => String(input.checked) };
  }
  if (schema.type === "integer" || schema.type === "number") {
    const step = schema.type === "integer" ? 1 : "any";
    const input = h("input", { ...about, type: "number", step, value: known });
    return { input, note, read: () => input.value };
  }
  if (schema.type === "string") {
    const type = schema.format === "date" ? "date" : "text";
    const input = h("input", { ...about, type, value: known });
    return { input, note, read: () => (input.value === "" ? "" : JSON.stringify(input.value)) };
  }
  const input = h("textarea.code", { ...about, rows: 4, spellcheck: "false" });
  input.value = known === null ? "" : JSON.stringify(known, null, 2);
  const hint = h("details", null, h("summary", null, "as JSON"), json(JSON.stringify(schema)));
  return { input: h("div", null, input, hint), note, read: () => input.value.trim() };
}
