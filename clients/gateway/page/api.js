// The gateway's REST and server-sent events. Paths are relative to this file, so that the page, and
// a chat on the page of another program, work below any prefix.

const ROOT = new URL("../", import.meta.url);
const TOKEN = "perdure.token";
const IN_ADDRESS = /^#token=(.+)$/;
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;
const UNSAFE =
  "A part of the id is . or .., which a browser would resolve. Use the command line instead.";
const PASSING = [0, 408, 429, 500, 502, 503, 504];

/** An error of the gateway, as a problem document (RFC 9457), or of the connection to it. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? body.title ?? "the request failed");
    this.status = status;
    this.title = body.title ?? `Status ${status}`;
    this.code = body.code ?? "";
    this.errors = body.errors ?? [];
    this.login = null; // the address where people log in, if nobody is known and there is one
  }

  /** What a person can do about it. */
  get advice() {
    return ADVICE[this.code] ?? ADVICE[this.status] ?? "";
  }
}

const ADVICE = {
  OFFLINE:
    "Check that the gateway runs; the page tries again by itself where it follows something.",
  APPROVAL_CONFLICT: "The call was decided elsewhere, or its arguments changed. Look at it again.",
  TURN_OVER: "The turn has ended. Fork it to go on from one of its steps.",
  TURN_CONFLICT: "A turn of this id has another agent or task. Give another id.",
  INVALID_REQUEST: "Correct it and try again.",
  SESSION_CLOSED: "A closed session takes no messages. Begin another one.",
  403: "Ask for this permission.",
  404: "It may be too old for Temporal to have it, or belong to another tenant.",
  429: "Close other tabs that follow turns, or try again in a moment.",
  503: "Temporal does not answer. Try again in a moment.",
  500: "The log of the gateway has the reason.",
};

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
  /** Move the token of an address such as `perdure serve` prints out of it; whether it has one. */
  takeFromAddress: () => {
    const [, given] = IN_ADDRESS.exec(location.hash) ?? [];
    if (!given) return false;
    history.replaceState(null, "", location.pathname + location.search);
    token.set(given);
    return true;
  },
};

/** The path of a resource, whose id may have slashes. One that `URL` would resolve to another
 * resource is refused: ids of earlier releases may have such parts. */
export function path(kind, id, ...rest) {
  const parts = id.split("/");
  if (parts.some((part) => part === "." || part === "..")) {
    throw new Problem(422, { title: "This id cannot be used here", detail: UNSAFE });
  }
  return ["v1", kind, parts.map(encodeURIComponent).join("/"), ...rest].join("/");
}

export function get(where, query = {}, signal = undefined) {
  return answered("GET", where, { query, signal });
}

/** Send a body: a value, or a text that is JSON already. */
export function post(where, body, key = undefined) {
  return answered("POST", where, {
    body: typeof body === "string" ? body : JSON.stringify(body),
    key,
  });
}

async function answered(method, where, options) {
  const response = await asked(method, where, options);
  if (!response.ok) throw await problemOf(response);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

async function asked(method, where, { query = {}, body, key, signal, headers = {} }) {
  const url = new URL(where, ROOT);
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) {
      if (one !== "" && one !== null && one !== undefined) url.searchParams.append(name, one);
    }
  }
  const sent = { "Perdure-Page": "1", ...headers };
  if (token.get()) sent.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (key) sent["Idempotency-Key"] = key;
  try {
    return await fetch(url, {
      method,
      body,
      signal,
      headers: sent,
      cache: "no-store",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, {
      title: "No connection",
      detail: "the gateway does not answer",
      code: "OFFLINE",
    });
  }
}

async function problemOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // a proxy's page is no problem document
  }
  const problem = new Problem(response.status, body);
  problem.login = response.headers.get("Perdure-Login");
  if (response.status === 401)
    dispatchEvent(new CustomEvent("unauthenticated", { detail: problem }));
  return problem;
}

/**
 * Follow a stream of events until it ends, the signal is aborted, or an error that a repetition
 * does not mend. After a lost connection it goes on after the last known event. A page that is
 * hidden has no connection, because browsers open only six to a host.
 *
 * `onMessage` gets each message; `onConnection` gets whether there is a connection.
 */
export async function follow(where, { query = {}, signal, onMessage, onConnection = () => {} }) {
  const place = { last: "", pause: FIRST_PAUSE };
  while (!signal.aborted) {
    await visible();
    const until = AbortSignal.any([signal, hidden()]);
    const response = await connected(where, { query, until, place, onConnection });
    if (response?.status === 204) return;
    for await (const { id, data } of response ? messagesOf(response.body) : []) {
      place.pause = FIRST_PAUSE;
      if (id) place.last = id;
      onMessage(JSON.parse(data));
    }
    await sleep(until.aborted ? 0 : place.pause, signal);
  }
}

/** The response to a request for a stream; null if another attempt may succeed. */
async function connected(where, { query, until, place, onConnection }) {
  const headers = {
    Accept: "text/event-stream",
    ...(place.last ? { "Last-Event-ID": place.last } : {}),
  };
  try {
    const response = await asked("GET", where, { query, signal: until, headers });
    if (!response.ok) throw await problemOf(response);
    onConnection(true);
    return response;
  } catch (error) {
    if (until.aborted) return null;
    if (!PASSING.includes(error.status)) throw error;
    onConnection(false);
    place.pause = Math.min(place.pause * 2, LONGEST_PAUSE);
    return null;
  }
}

function visible() {
  return new Promise((resolve) => changed(() => !document.hidden, resolve));
}

function hidden() {
  const controller = new AbortController();
  changed(
    () => document.hidden,
    () => controller.abort(),
  );
  return controller.signal;
}

/** Call a function as soon as a condition on the visibility of the page is true. */
function changed(condition, action) {
  const look = () => {
    if (!condition()) return;
    document.removeEventListener("visibilitychange", look);
    action();
  };
  document.addEventListener("visibilitychange", look);
  look();
}

/**
 * Follow the events of a turn, from the first one, until it is over. `isPast` ends it with the last
 * event that there is now. Other values are those of `follow`.
 */
export async function followTurn(id, { signal, onMessage, isPast = false, ...options }) {
  const reading = new AbortController();
  let isOver = false;
  let isCaughtUp = false;
  await follow(path("turns", id, "events"), {
    ...options,
    signal: AbortSignal.any([signal, reading.signal]),
    onMessage: (event) => {
      if (reading.signal.aborted) return;
      onMessage(event);
      isOver ||= event.kind === "turn_ended";
      isCaughtUp ||= event.kind === "caught_up";
      if (isCaughtUp && (isPast || isOver)) reading.abort();
    },
  });
}

async function* messagesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let message = { id: "", data: [] };
  for (;;) {
    const value = await read(reader);
    if (value === null) return;
    await breath();
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.map((one) => one.replace(/\r$/, ""))) {
      if (line === "") {
        if (message.data.length) yield { id: message.id, data: message.data.join("\n") };
        message = { id: "", data: [] };
      } else if (line.startsWith("id:")) message.id = line.slice(3).trim();
      else if (line.startsWith("data:")) message.data.push(line.slice(5).replace(/^ /, ""));
    }
  }
}

const SLICE = 8; // milliseconds of work between two chances to paint and to answer a key
let rested = performance.now();

/** Let the browser paint and answer keys, if it had no chance for a while. */
export async function breath() {
  if (performance.now() - rested < SLICE) return;
  await new Promise((resolve) => setTimeout(resolve));
  rested = performance.now();
}

/** The next part of a body; null at its end, and if the connection is lost. */
async function read(reader) {
  try {
    const { done, value } = await reader.read();
    return done ? null : value;
  } catch {
    return null;
  }
}

/** Wait, or return when the signal is aborted. */
function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}

/** Call a function now and again after each pause, while the page is visible, until the signal. */
export async function repeat(milliseconds, signal, action) {
  while (!signal.aborted) {
    if (!document.hidden) await action();
    await sleep(milliseconds, signal);
  }
}

/** A random id, for requests that may be repeated. */
export function randomId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}
