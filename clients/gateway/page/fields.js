// JSON as fields: an object as names and values, a list of objects as a table. Numbers keep their
// digits, because they are never read as numbers.

import { fill, h, words } from "./dom.js";
import { isJson } from "./format.js";
import { json } from "./parts.js";

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const DEEPEST = 6;
const MOST_ROWS = 50;

/** Whether a text is JSON with fields to show. */
export function hasFields(text) {
  return /^\s*[{[]\s*[^\s}\]]/.test(text) && isJson(text);
}

/** JSON as fields, with a button that shows it as it is. */
export function fields(text) {
  const element = h("div.fields");
  const asFields = () => {
    try {
      fill(element, show(read(text)), toggle("Show as JSON", asJson));
    } catch {
      fill(element, json(text)); // nested too deeply for a reader too
    }
  };
  const asJson = () => {
    fill(element, json(text), toggle("Show as fields", asFields));
  };
  const toggle = (label, onclick) =>
    h("div", null, h("button.link.small", { type: "button", onclick }, label));
  asFields();
  return element;
}

/** Valid JSON as arrays `["{", [name, value], …]`, `["[", value, …]` and texts of the rest. */
function read(text) {
  const tokens = text.match(TOKEN);
  let place = 0;
  const value = () => {
    const token = tokens[place];
    place += 1;
    if (token !== "{" && token !== "[") return token;
    const made = [token];
    while (tokens[place] !== "}" && tokens[place] !== "]") {
      if (token === "{") {
        const name = JSON.parse(tokens[place]);
        place += 2;
        made.push([name, value()]);
      } else made.push(value());
      if (tokens[place] === ",") place += 1;
    }
    place += 1;
    return made;
  };
  return value();
}

function show(value, depth = 0) {
  if (typeof value === "string") return scalar(value);
  const [kind, ...items] = value;
  if (!items.length) return h("span.muted", null, kind === "{" ? "no fields" : "none");
  if (depth >= DEEPEST) return h("code", null, written(value));
  if (kind === "{") return named(items, depth);
  return items.every(isObject) ? table(items, depth) : list(items, depth);
}

const isObject = (value) => Array.isArray(value) && value[0] === "{";

function scalar(token) {
  if (token === "null") return h("span.muted", null, "none");
  if (token === "true" || token === "false")
    return h("span", null, token === "true" ? "yes" : "no");
  return token.startsWith('"') ? words(JSON.parse(token)) : h("span.number", null, token);
}

function named(items, depth) {
  return h(
    "dl",
    null,
    items.map(([name, value]) => [h("dt", null, name), h("dd", null, show(value, depth + 1))]),
  );
}

function list(items, depth) {
  const shown = items.slice(0, MOST_ROWS).map((one) => h("li", null, show(one, depth + 1)));
  return h("ul", null, shown, rest(items, "li"));
}

function table(items, depth) {
  const names = [...new Set(items.flatMap(([, ...entries]) => entries.map(([name]) => name)))];
  if (names.length > 8) return list(items, depth);
  const row = ([, ...entries]) => {
    const known = new Map(entries);
    const cell = (name) => (known.has(name) ? show(known.get(name), depth + 1) : "");
    return h(
      "tr",
      null,
      names.map((name) => h("td", null, cell(name))),
    );
  };
  const head = h(
    "tr",
    null,
    names.map((name) => h("th", null, name)),
  );
  const body = items.slice(0, MOST_ROWS).map(row);
  return h(
    "div.wide-content",
    null,
    h("table", null, h("thead", null, head), h("tbody", null, body)),
    rest(items, "p"),
  );
}

function rest(items, tag) {
  const left = items.length - MOST_ROWS;
  return left > 0 ? h(`${tag}.muted`, null, `and ${left} more`) : null;
}

function written(value) {
  if (typeof value === "string") return value;
  const [kind, ...items] = value;
  return kind === "["
    ? `[${items.map(written).join(", ")}]`
    : `{${items.map(([name, one]) => `${JSON.stringify(name)}: ${written(one)}`).join(", ")}}`;
}
