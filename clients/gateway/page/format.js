// Money, times and durations in words.

import { exact, h } from "./dom.js";

/** An amount of US dollars, which is text or null. */
export function money(amount) {
  if (amount === null || amount === undefined) return "unknown price";
  const value = Number(amount);
  const digits = value === 0 || value >= 1 ? 2 : Math.max(4, 1 - Math.floor(Math.log10(value)));
  const text = value.toFixed(digits);
  const short = digits > 2 ? text.replace(/0+$/, "") : text;
  const [whole, part = ""] = short.split(".");
  return `$${Number(whole).toLocaleString("en")}.${part.padEnd(2, "0")}`;
}

export function count(number) {
  return Number(number).toLocaleString("en");
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** The seconds of an ISO 8601 duration, such as PT1H2M3.5S. */
export function seconds(duration) {
  const found =
    /^(-)?P(?:(\d+)Y)?(?:(\d+)D)?(?:T(?:([\d.]+)H)?(?:([\d.]+)M)?(?:([\d.]+)S)?)?$/.exec(
      duration ?? "",
    );
  if (!found) return 0;
  const [years, days, hours, minutes, rest] = found.slice(2).map((part) => Number(part ?? 0));
  const total = (((years * 365 + days) * 24 + hours) * 60 + minutes) * 60 + rest;
  return found[1] ? -total : total;
}

/** A duration in seconds, in words of at most two units. */
export function duration(total) {
  if (total < 1) return `${Math.max(0, total).toFixed(1)} s`;
  const whole = Math.round(total);
  const units = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  const first = units.findIndex(([value]) => value > 0);
  return units
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

function age(moment) {
  const passed = (Date.now() - new Date(moment)) / 1000;
  return passed < 5 ? "now" : `${rough(passed)} ago`;
}

export function until(moment) {
  const left = (new Date(moment) - Date.now()) / 1000;
  return left <= 0 ? "now" : `in ${rough(left)}`;
}

/** A duration in seconds, in one unit. */
function rough(total) {
  const [size, unit] = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
  ].find(([one]) => total >= one) ?? [1, "s"];
  return `${Math.round(total / size)} ${unit}`;
}

/** A number of bytes: 312 bytes, 5 KB, 1.2 MB. */
export function bytes(size) {
  if (size < 1_000) return plural(size, "byte");
  return size < 999_500 ? `${Math.round(size / 1_000)} KB` : `${(size / 1_000_000).toFixed(1)} MB`;
}

const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

export function clock(moment) {
  return h(
    "time",
    { datetime: moment, title: FULL.format(new Date(moment)) },
    CLOCK.format(new Date(moment)),
  );
}

/** A time as its age, which ticks; the full date is its title. */
export function ago(moment) {
  return h(
    "time",
    { datetime: moment, title: FULL.format(new Date(moment)), "data-age": true },
    age(moment),
  );
}

setInterval(() => {
  for (const one of document.querySelectorAll("time[data-age]")) {
    const text = age(one.dateTime);
    if (one.textContent !== text) one.textContent = text;
  }
}, 5000);

const DEEPEST = 40; // levels that are indented: a line of a text is not longer for its depth
const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
/**
 * JSON with line breaks. Numbers are not read, so none is rounded; characters that nobody sees are
 * escaped, which does not change the value. What is not JSON is returned as it is.
 */
export function indented(json) {
  if (!isJson(json)) return json;
  const parts = [];
  let depth = 0;
  let before = "";
  const line = () => `\n${"  ".repeat(Math.min(depth, DEEPEST))}`;
  for (const [token] of json.matchAll(TOKEN)) {
    const isFirst = before === "{" || before === "[";
    const isEnd = token === "}" || token === "]";
    if (isEnd) depth -= 1;
    if (isFirst !== isEnd) parts.push(line());
    parts.push(token);
    if (token === ",") parts.push(line());
    else if (token === ":") parts.push(" ");
    else if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return exact(parts.join(""));
}

export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
