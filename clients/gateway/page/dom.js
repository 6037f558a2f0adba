// Creates elements. Strings become text nodes, so a text is never HTML.

const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\u{16fe4}\u{1d159}]/gu;
const SPACES = /(?! )\p{Zs}/gu;
const FORMS = "\u200c\u200d\ufe0e\ufe0f";

/** Escape characters that are invisible, or that change the direction of the text around them. */
export function seen(text) {
  return String(text)
    .replace(/\r\n/g, "\n")
    .replace(UNSEEN, (letter, place, all) =>
      letter === "\n" ||
      letter === "\t" ||
      isForm(letter, all[place - 1] ?? "", all[place + 1] ?? "")
        ? letter
        : escaped(letter),
    );
}

/** Escape the same characters and all unusual spaces in JSON, which does not change its value. */
export function exact(json) {
  return json
    .replace(UNSEEN, (letter) => (letter === "\n" ? letter : escaped(letter)))
    .replace(SPACES, escaped);
}

function escaped(letter) {
  return Array.from(
    { length: letter.length },
    (_, unit) => `\\u${letter.charCodeAt(unit).toString(16).padStart(4, "0")}`,
  ).join("");
}

/** Whether a character only affects its neighbours, as in emoji, Persian and Hindi. */
function isForm(letter, before, after) {
  if (!FORMS.includes(letter)) return false;
  const isSelector = letter >= "\ufe00";
  return isSelector ? before > "\x7f" || after === "\u20e3" : before > "\x7f" && after > "\x7f";
}

/**
 * Create an element: h("p.note", {title: "…"}, "text", child).
 *
 * A property whose name begins with "on" is a listener; true is an empty attribute; null and false
 * are left out. A child is an element or a text; null and false are left out.
 */
export function h(tag, properties, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.classList.add(...classes);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...texts(children));
  return element;
}

function texts(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(seen(child))));
}

/** Replace the content of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...texts(children));
  return element;
}

const SHOWN = 4000;

/** A text of a model, a tool or a person, of any length and in any direction of writing. */
export function words(text, tag = "div.words") {
  const element = h(tag, { dir: "auto" });
  if (text.length <= SHOWN * 1.5) return fill(element, text);
  const rest = text.length - SHOWN;
  const more = h(
    "button.link",
    { type: "button" },
    `Show ${rest.toLocaleString()} more characters`,
  );
  more.addEventListener("click", () => fill(element, text));
  return fill(element, `${text.slice(0, SHOWN)}…`, h("div", null, more));
}

/**
 * Make the children of an element those of a list, and keep the ones that have not changed, with
 * their focus and their state.
 */
export function reconcile(element, items, keyOf, render) {
  const known = new Map([...element.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, place) => {
    const key = keyOf(item);
    let child = known.get(key);
    known.delete(key);
    if (child?.item !== item) child = current(child, item, key, render);
    if (element.children[place] !== child)
      element.insertBefore(child, element.children[place] ?? null);
  });
  for (const child of known.values()) removeKeepingFocus(child);
}

/** Remove an element; a focus in it goes to what is next to it, or to the content of the page. */
function removeKeepingFocus(old) {
  const isFocused = old.contains(document.activeElement);
  const near = old.nextElementSibling ?? old.previousElementSibling;
  old.remove();
  if (!isFocused) return;
  const target =
    near?.querySelector("h3[tabindex], button, a, input") ?? document.getElementById("main");
  target?.focus({ preventScroll: true });
}

/** The element of an item: the one that there is, if the item is equal to what that shows. */
function current(child, item, key, render) {
  const state = JSON.stringify(item);
  if (child?.state === state) {
    child.item = item;
    return child;
  }
  const fresh = render(item);
  fresh.dataset.key = key;
  Object.assign(fresh, { item, state });
  if (child) replaceKeepingFocus(child, fresh);
  return fresh;
}

/** Make the content of an element again only when what it shows has changed. */
export function once(element, shown, make) {
  if (element.querySelector(":scope > :not([data-key])")) fill(element); // a skeleton
  reconcile(
    element,
    [shown],
    () => "all",
    () => h("div", null, make()),
  );
}

function replaceKeepingFocus(old, fresh) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  old.replaceWith(fresh);
  if (!focused) return;
  const all = [fresh, ...fresh.querySelectorAll("a, button, input, textarea, summary")];
  (
    all.find((one) => one.tagName === focused.tagName && one.textContent === focused.textContent) ??
    all[1]
  )?.focus();
}

/** Say something to people who do not see the page. */
export function announce(text) {
  fill(document.getElementById("said"), text);
}
