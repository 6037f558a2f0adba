// Finding words in all rows of a trace, those that are folded too.

import { breath } from "./api.js";
import { announce, fill, h } from "./dom.js";

const PAUSE = 150;

/** A field that finds rows. `places()` returns the traces with their rows; `go(rows, row)` shows
 * one. */
export function finder(places, go) {
  const input = h("input", {
    type: "search",
    placeholder: "Find in this turn  ( / )",
    "aria-label": "Find in this turn",
    autocomplete: "off",
  });
  const said = h("span.small.muted.found");
  let found = [];
  let place = -1;
  let timer = null;
  let asked = "";

  const step = (by) => {
    if (!found.length) return;
    place = (place + by + found.length) % found.length;
    const [rows, row] = found[place];
    go(rows, row);
    tell(`${place + 1} of ${found.length}`);
  };
  const tell = (text) => {
    fill(said, text);
    announce(text);
  };
  const look = async () => {
    const words = input.value.trim().toLowerCase();
    asked = words;
    found = [];
    place = -1;
    if (!words) {
      fill(said);
      return;
    }
    for (const { trace, rows } of places()) {
      for (const row of trace.rows) {
        if (textOf(row).some((one) => one.toLowerCase().includes(words))) found.push([rows, row]);
        await breath();
        if (asked !== words) return;
      }
    }
    if (found.length) step(1);
    else tell("nothing found");
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE);
  });
  input.addEventListener("keydown", async (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    if (asked === input.value.trim().toLowerCase()) step(event.shiftKey ? -1 : 1);
  });
  return { element: h("span.finder", null, input, said), focus: () => input.focus() };
}

function textOf(row) {
  return [row.name, row.text, row.arguments, row.result, row.error, row.state, row.decision]
    .filter((one) => one)
    .map(String);
}
