// Markdown of models as elements. No text becomes HTML: each element is made by its name, markup in
// a text stays text, an image becomes its words, and a link leads only to the web or to mail.

import { fill, h } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)\s*$/;
const HEADING = /^ {0,3}(#{1,6}) (.*)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const DIVIDER = /^ {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const DEEPEST = 6;
const LONGEST_LINE = 1_000; // of a fence, a rule or the head of a table, whose patterns have spaces
const CUT = 6_000;

/** A text of a model with its Markdown; of a long one the beginning, and a button for the rest. */
export function markdown(text) {
  const element = h("div.markdown");
  if (text.length <= CUT * 1.5) return set(element, text);
  const more = h(
    "button.link",
    { type: "button" },
    `Show ${(text.length - CUT).toLocaleString()} more characters`,
  );
  more.addEventListener("click", () => set(element, text));
  set(element, `${text.slice(0, CUT)}…`).append(h("div", null, more));
  return element;
}

/** Set a text. The direction comes last: with each child before, it would be looked for anew. */
function set(element, text) {
  element.removeAttribute("dir");
  fill(element, blocks(text.split(/\r?\n/)));
  element.setAttribute("dir", "auto");
  return element;
}

/** The first line of a text without its marks, for a row. */
export function firstLine(text, most = 240) {
  return text
    .slice(0, most * 4)
    .replace(/```\w*|^[ |:-]{3,}$|[|]/gm, " ")
    .replace(/[*`]+|^ {0,3}(#+|>) /gm, "")
    .replace(/\s+/g, " ")
    .trim()
    .slice(0, most);
}

/** The elements of lines. */
function blocks(lines, depth = 0) {
  const made = [];
  let place = 0;
  while (place < lines.length) {
    const line = lines[place];
    if (!line.trim()) {
      place += 1;
      continue;
    }
    const [element, next] = blockAt(lines, place, depth);
    made.push(element);
    place = next;
  }
  return made;
}

const matched = (pattern, line) => (line.length > LONGEST_LINE ? null : pattern.exec(line));

/** The block that begins at a line, and the line after it. */
function blockAt(lines, place, depth) {
  const line = lines[place];
  const fence = matched(FENCE, line);
  if (fence) return codeAt(lines, place, fence[1]);
  const heading = matched(HEADING, line);
  if (heading) return [headingOf(heading[1].length, heading[2].trim()), place + 1];
  if (matched(RULE, line)) return [h("hr"), place + 1];
  if (depth < DEEPEST && QUOTE.test(line)) return quoteAt(lines, place, depth);
  if (depth < DEEPEST && ITEM.test(line)) return listAt(lines, place, depth);
  if (line.includes("|") && matched(DIVIDER, lines[place + 1] ?? "")) return tableAt(lines, place);
  return paragraphAt(lines, place, depth);
}

/** A heading of the text, which is none of the page. */
function headingOf(level, text) {
  return h(`p.level${level}`, null, h("strong", null, inline(text.replace(/ #+$/, ""))));
}

function codeAt(lines, place, mark) {
  let end = place + 1;
  while (end < lines.length && !lines[end].trim().startsWith(mark)) end += 1;
  return [h("pre.json", null, h("code", null, lines.slice(place + 1, end).join("\n"))), end + 1];
}

function quoteAt(lines, place, depth) {
  let end = place;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(place, end).map((one) => one.replace(QUOTE, ""));
  return [h("blockquote", null, blocks(inner, depth + 1)), end];
}

function listAt(lines, place, depth) {
  const [, indent, mark] = ITEM.exec(lines[place]);
  const isOrdered = /\d/.test(mark);
  const items = [];
  let end = place;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    const isNext = item && item[1].length === indent.length && /\d/.test(item[2]) === isOrdered;
    if (isNext) items.push([item[3]]);
    else if (lines[end].trim() && indentOf(lines[end]) <= indent.length) break;
    else items.at(-1).push(lines[end].slice(Math.min(indentOf(lines[end]), indent.length + 2)));
    end += 1;
  }
  const start = isOrdered && parseInt(mark, 10) !== 1 ? { start: parseInt(mark, 10) } : null;
  const rows = items.map((one) => h("li", null, itemOf(one, depth + 1)));
  return [h(isOrdered ? "ol" : "ul", start, rows), end];
}

/** The content of an item: its words, or blocks if it has more than one. */
function itemOf(lines, depth) {
  const written = lines.findLastIndex((one) => one.trim()) + 1;
  return written <= 1 ? inline(lines[0]) : blocks(lines.slice(0, written), depth);
}

const indentOf = (line) => line.length - line.trimStart().length;

function tableAt(lines, place) {
  let end = place + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim()) end += 1;
  const row = (line, tag) =>
    h(
      "tr",
      null,
      cells(line).map((one) => h(tag, null, inline(one))),
    );
  const body = lines.slice(place + 2, end).map((line) => row(line, "td"));
  const table = h("table", null, h("thead", null, row(lines[place], "th")), h("tbody", null, body));
  return [h("div.wide-content", null, table), end];
}

function cells(line) {
  return line
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .map((one) => one.trim());
}

function paragraphAt(lines, place, depth) {
  let end = place + 1;
  while (end < lines.length && lines[end].trim() && !beginsBlock(lines, end, depth)) end += 1;
  return [h("p", null, inline(lines.slice(place, end).join("\n"))), end];
}

function beginsBlock(lines, place, depth) {
  const line = lines[place];
  if ([FENCE, HEADING, RULE].some((pattern) => matched(pattern, line))) return true;
  return depth < DEEPEST && (QUOTE.test(line) || ITEM.test(line));
}

const PAIRS = [
  ["**", "strong"],
  ["__", "strong"],
  ["~~", "del"],
  ["*", "em"],
  ["_", "em"],
];
const LINK = /^\[([^\][\n]{0,500})\]\(\s*<?([^\s)>]{1,2000})>?(?:\s+"[^"\n]{0,200}")?\s*\)/;
const ADDRESS = /^https?:\/\/[^\s<>"'`)\]]{1,2000}/;
const SPECIAL = /[\\`*_~[!h\n]/g;

/** Text with marks such as ** as elements. Linear: what is not closed is looked for only once. */
function inline(text, depth = 0) {
  const made = [];
  const next = finder(text);
  let plain = "";
  let place = 0;
  const put = (element, end) => {
    if (plain) made.push(plain);
    plain = "";
    if (element) made.push(element);
    place = end;
  };
  while (place < text.length) {
    SPECIAL.lastIndex = place;
    const special = SPECIAL.exec(text)?.index ?? text.length;
    plain += text.slice(place, special);
    place = special;
    if (place === text.length) break;
    const found = markAt(text, place, next, depth);
    if (found) put(...found);
    else {
      plain += text[place];
      place += 1;
    }
  }
  put(null, place);
  return made;
}

/** A function that returns the next place of a mark; it reads the text once for each mark. */
function finder(text) {
  const known = new Map();
  return (mark, from) => {
    const last = known.get(mark) ?? -2;
    if (last === -1 || last >= from) return last;
    const found = text.indexOf(mark, from);
    known.set(mark, found);
    return found;
  };
}

/** The element at a place and its end; null if the letter there stands for itself. */
function markAt(text, place, next, depth) {
  const letter = text[place];
  if (letter === "\n") return text.slice(place - 2, place) === "  " ? [h("br"), place + 1] : null;
  if (letter === "\\") {
    return /[!-/:-@[-`{-~]/.test(text[place + 1] ?? "") ? [text[place + 1], place + 2] : null;
  }
  if (letter === "`") return codeSpan(text, place, next);
  if (letter === "h") return /\w/.test(text[place - 1] ?? "") ? null : bare(text, place);
  if (letter === "[" || text.startsWith("![", place)) return linkAt(text, place, depth);
  return depth < DEEPEST ? pairAt(text, place, next, depth) : null;
}

function codeSpan(text, place, next) {
  const mark = text.startsWith("``", place) ? "``" : "`";
  const end = next(mark, place + mark.length);
  if (end < 0) return null;
  return [h("code", null, text.slice(place + mark.length, end)), end + mark.length];
}

function bare(text, place) {
  const found = ADDRESS.exec(text.slice(place, place + 2_100))?.[0].replace(/[.,;:!?]+$/, "");
  return found ? [anchor(found, found), place + found.length] : null;
}

function linkAt(text, place, depth) {
  const isImage = text[place] === "!";
  const found = LINK.exec(text.slice(place + (isImage ? 1 : 0), place + 2_800));
  if (!found) return null;
  const [all, words, address] = found;
  const end = place + all.length + (isImage ? 1 : 0);
  if (isImage) return [h("span.muted", null, `[image: ${words || "without a name"}]`), end];
  return [anchor(address, depth < DEEPEST ? inline(words, depth + 1) : words), end];
}

/** A link that tells the other side nothing; an address of another kind stays text. */
function anchor(address, content) {
  if (!/^(https?:\/\/|mailto:)/i.test(address)) return h("span", null, content, ` (${address})`);
  return h(
    "a",
    { href: address, title: address, target: "_blank", rel: "noopener noreferrer nofollow" },
    content,
  );
}

function pairAt(text, place, next, depth) {
  const pair = PAIRS.find(([mark]) => text.startsWith(mark, place));
  if (!pair) return null;
  const [mark, tag] = pair;
  const from = place + mark.length;
  const isInWord = mark.startsWith("_") && /\w/.test(text[place - 1] ?? "");
  if (isInWord || /\s|^$/.test(text[from] ?? "")) return null;
  const end = next(mark, from + 1);
  if (end < 0 || /\s/.test(text[end - 1])) return null;
  if (mark.startsWith("_") && /\w/.test(text[end + mark.length] ?? "")) return null;
  return [h(tag, null, inline(text.slice(from, end), depth + 1)), end + mark.length];
}
