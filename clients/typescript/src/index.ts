/** A client of Perdure's gateway, without dependencies: turns of agents over HTTP. */
import { Connection, messagesOf, PerdureError, refused, sleep } from "./connection.js";
import type { Answer, EntryOf, Input, Method, PathOf, PathOfPages, Query, Waiting } from "./operations.js";
import type * as schema from "./schema.js";
import { Text, type TextBegins, type TextVoid, type TurnItem } from "./text.js";

export type * from "./schema.js";
export type { TextBegins, TextVoid, TurnItem, Waiting };
export { PerdureError };

/** A gateway answers within two minutes, and sends a comment into an open stream every 15 seconds. */
const LONGEST = 150_000;
const SILENCE = 45_000;
const PAUSE = 1_000;
const WAIT_S = 30;

/** Where a stream begins, after the event with this cursor, and which private fields its events have. */
export interface Following extends Waiting {
  after?: string | undefined;
  include?: Query<"/v1/turns/{id}/events">["include"];
}
export type StartOptions = Waiting & Omit<schema.StartTurn, "agent" | "task">;
export type SayOptions = Waiting & Omit<schema.SendMessage, "text">;
/** A call that waits for a person, of the `waits` of a status or of `/v1/approvals`. */
export type CallToDecide = Pick<schema.PendingApproval, "call_id" | "token">;
type Sent = Waiting & { path?: Record<string, string>; query?: object; body?: unknown; repeat?: boolean };

export class Perdure {
  readonly #base: string;
  readonly #token: () => string | Promise<string>;
  readonly #patience: number;

  /**
   * @param url The address of the gateway.
   * @param token The token of the caller; a function is asked for it before each request.
   * @param options `patience` is how long a request that may be repeated is tried while the gateway is away: 60,000 milliseconds.
   */
  constructor(url: string | URL, token: string | (() => string | Promise<string>), { patience = 60_000 } = {}) {
    this.#base = new URL(url).href.replace(/\/$/, "");
    this.#token = typeof token === "string" ? () => token : token;
    this.#patience = patience;
  }

  /** Any operation, by its method and path: `request("post", "/v1/schedules", { body })`. */
  async request<M extends Method, P extends PathOf<M>>(method: M, path: P, input: Input<M, P>): Promise<Answer<M, P>> {
    const sent = input as Sent;
    for (const until = Date.now() + this.#patience; ; ) {
      const connection = new Connection(this.#base, sent.signal);
      try {
        const response = await this.#send(method, path, sent, connection);
        if (response.status === 204) return undefined as Answer<M, P>;
        return (await connection.part(LONGEST, () => response.json())) as Answer<M, P>;
      } catch (error) {
        const again = (method === "get" || sent.repeat) && error instanceof PerdureError && error.isPassing;
        if (!again || Date.now() > until) throw error;
        await sleep(1_000 * (error.retryAfter ?? 0) || PAUSE, sent.signal);
      }
    }
  }

  /**
   * The messages of a stream, such as `/v1/batches/{id}/results`. After a connection that broke, the stream goes on behind
   * the last message with an id, with any process of the gateway; `onReattached` is called then.
   */
  async *stream<P extends PathOf<"get">>(path: P, input: Input<"get", P> & { after?: string | undefined; onReattached?: () => void }): AsyncGenerator<unknown> {
    let { after } = input;
    for (let pause = PAUSE, lostAt: number | undefined, isFirst = true; ; isFirst = false) {
      const connection = new Connection(this.#base, input.signal);
      try {
        const response = await this.#send("get", path, input, connection, { Accept: "text/event-stream", ...(after && { "Last-Event-ID": after }) });
        if (response.status === 204 || !response.body) return;
        if (!isFirst) input.onReattached?.();
        for await (const message of messagesOf(response.body, connection, SILENCE)) {
          lostAt = undefined;
          after = message.id ?? after;
          pause = Number(message.retry ?? pause);
          if (message.data !== undefined) yield JSON.parse(message.data);
        }
      } catch (error) {
        lostAt ??= Date.now();
        if (!(error instanceof PerdureError && error.isPassing) || Date.now() - lostAt > this.#patience) throw error;
      } finally {
        connection.close();
      }
      await sleep(pause, input.signal);
    }
  }

  /** Start a turn; one with the same id, agent and task is found instead. Without an id, it gets a random one. */
  async start(agent: string, task: schema.StartTurn["task"], { signal, ...options }: StartOptions = {}): Promise<Turn> {
    const body = { ...options, id: options.id ?? randomId(), agent, task };
    return this.turn((await this.request("post", "/v1/turns", { body, repeat: true, signal })).id);
  }

  turn(id: string): Turn {
    return new Turn(this, id);
  }

  session(id: string): Session {
    return new Session(this, id);
  }

  /** All entries of a list with pages: `for await (const turn of perdure.list("/v1/turns", { query: { state: "running" } }))`. */
  async *list<P extends PathOfPages>(path: P, input: Input<"get", P>): AsyncGenerator<EntryOf<P>> {
    for (let after: string | undefined, isLast = false; !isLast; isLast = after === undefined) {
      const { next, ...lists } = await this.request("get", path, { ...input, query: { ...input.query, after } } as Input<"get", P>);
      for (const entries of Object.values(lists)) yield* entries as EntryOf<P>[];
      after = next ?? undefined;
    }
  }

  async #send(method: Method, path: string, sent: Sent, connection: Connection, headers: Record<string, string> = {}): Promise<Response> {
    const url = new URL(this.#base + path.replace(/\{(\w+)\}/g, (_, name: string) => encoded(sent.path?.[name] ?? "")));
    for (const [name, value] of Object.entries(sent.query ?? {}))
      for (const one of [value ?? []].flat()) url.searchParams.append(name, String(one));
    const body = sent.body === undefined ? null : JSON.stringify(sent.body);
    const known = { Authorization: `Bearer ${await this.#token()}`, ...(body !== null && { "Content-Type": "application/json" }) };
    const request = { method: method.toUpperCase(), headers: { ...known, ...headers }, body, signal: connection.signal };
    const response = await connection.part(LONGEST, () => fetch(url, request));
    if (response.ok) return response;
    throw await connection.part(LONGEST, () => refused(response));
  }
}

export class Turn {
  constructor(private readonly client: Perdure, readonly id: string) {}

  /** Its status. With `wait`, once it is over or needs a person, and after so many seconds at the latest. */
  status({ wait = 0, signal }: Waiting & { wait?: number } = {}): Promise<schema.TurnStatus> {
    return this.client.request("get", "/v1/turns/{id}", { path: this, query: { wait }, signal });
  }

  /** Wait for its end. A turn without an answer is not an exception: its result has an `error`. */
  async result({ signal }: Waiting = {}): Promise<schema.TurnResult> {
    for (;;) {
      const answer = await this.client.request("get", "/v1/turns/{id}/result", { path: this, query: { wait: WAIT_S }, signal });
      if (!("state" in answer)) return answer;
    }
  }

  /** Its events to its end, each once. */
  async *events(following: Following = {}): AsyncGenerator<schema.TurnEvent> {
    for await (const item of this.#items(following, false)) if ("cursor" in item) yield item;
  }

  /** Its events, and what comes between them. */
  async *live(following: Following = {}): AsyncGenerator<TurnItem> {
    const text = new Text();
    for await (const item of this.#items(following, true, () => text.reattached())) yield* text.see(item);
  }

  /** The text of its model in pieces, and marks: where a text begins, and that it is void. */
  async *text(following: Following = {}): AsyncGenerator<string | TextBegins | TextVoid> {
    for await (const item of this.live(following)) {
      if (item.kind === "text") yield item.text;
      if (item.kind === "text_begins" || item.kind === "text_void") yield item;
    }
  }

  approve(call: CallToDecide, { signal, ...how }: Waiting & Pick<schema.ApproveCall, "reason" | "arguments"> = {}): Promise<undefined> {
    return this.client.request("post", "/v1/turns/{id}/approve", { path: this, body: { ...named(call), ...how }, signal });
  }

  deny(call: CallToDecide, { signal, ...how }: Waiting & Pick<schema.DenyCall, "reason"> = {}): Promise<undefined> {
    return this.client.request("post", "/v1/turns/{id}/deny", { path: this, body: { ...named(call), ...how }, signal });
  }

  /** Answer a question: one of its options, a text, or the values of its form. */
  answer(call: CallToDecide, answer: unknown, { signal }: Waiting = {}): Promise<undefined> {
    return this.client.request("post", "/v1/turns/{id}/answer", { path: this, body: { ...named(call), answer }, signal });
  }

  steer(text: string, { signal, ...options }: Waiting & Omit<schema.SteerTurn, "text"> = {}): Promise<schema.Reference> {
    const body = { ...options, id: options.id ?? randomId(), text };
    return this.client.request("post", "/v1/turns/{id}/steer", { path: this, body, repeat: true, signal });
  }

  cancel(reason = "", { signal }: Waiting = {}): Promise<schema.Cancelled> {
    return this.client.request("post", "/v1/turns/{id}/cancel", { path: this, body: { reason }, repeat: true, signal });
  }

  async *#items({ after, include, signal }: Following, live: boolean, onReattached?: () => void): AsyncGenerator<TurnItem> {
    const input = { path: this, query: { live, include }, after, signal, onReattached };
    for await (const item of this.client.stream("/v1/turns/{id}/events", input) as AsyncGenerator<TurnItem>) {
      yield item;
      if (item.kind === "turn_ended") return;
    }
  }
}

export class Session {
  constructor(private readonly client: Perdure, readonly id: string) {}

  /** Send a message, which begins the session with `begin` if there is none, and return the turn that reads it. */
  async say(text: string, { signal, ...options }: SayOptions = {}): Promise<Turn> {
    const body = { ...options, id: options.id ?? randomId(), text };
    const { id } = await this.client.request("post", "/v1/sessions/{id}/messages", { path: this, body, repeat: true, signal });
    for (;;) {
      const path = { id: this.id, message_id: id };
      const found = await this.client.request("get", "/v1/sessions/{id}/messages/{message_id}", { path, query: { wait: WAIT_S }, signal });
      if (found.turn_id) return this.client.turn(found.turn_id);
    }
  }

  /** The messages of its turns that are over. */
  async messages({ signal }: Waiting = {}): Promise<schema.SessionMessages["messages"]> {
    return (await this.client.request("get", "/v1/sessions/{id}/messages", { path: this, signal })).messages;
  }
}

const named = ({ call_id, token = "" }: CallToDecide) => ({ call_id, token });
/** An id may contain slashes, which separate its parts. */
const encoded = (id: string) => id.split("/").map(encodeURIComponent).join("/");
/** As `crypto.randomUUID`, which pages without TLS lack. */
const randomId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
