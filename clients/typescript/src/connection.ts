/** One request: how long it may take, what breaks it, and the messages of a stream. */
import type { Problem } from "./schema.js";

/** A request that failed. The message says what happened, to what, and what to do. */
export class PerdureError extends Error {
  override readonly name = "PerdureError";

  /**
   * @param problem What the gateway answers. If it is not reached: the status 0, and the code `GATEWAY_UNREACHABLE`.
   * @param retryAfter The seconds after which the same request may succeed.
   */
  constructor(readonly problem: Problem, readonly retryAfter?: number, options?: ErrorOptions) {
    super(problem.detail, options);
  }

  /** The stable code, such as `TURN_NOT_FOUND`. */
  get code(): string {
    return this.problem.code;
  }

  /** Whether the same request may succeed later: the gateway is away, or busy. */
  get isPassing(): boolean {
    return [0, 502, 504].includes(this.problem.status) || this.retryAfter !== undefined;
  }
}

const problem = (status: number, code: string, detail: string): Problem => ({ type: `urn:perdure:problem:${code}`, title: code, status, code, detail });

/** The error of an answer, which a proxy may have sent instead of a gateway. */
export async function refused(response: Response): Promise<PerdureError> {
  const { status, url, headers } = response;
  const text = await response.text();
  const retryAfter = Number(headers.get("retry-after") ?? NaN); // which may be a date
  const isProblem = headers.get("content-type")?.startsWith("application/problem+json");
  const other = () => problem(status, `HTTP_${status}`, `${url} answers with status ${status}, and not as a gateway does: ${text.slice(0, 200)}`);
  return new PerdureError(isProblem ? (JSON.parse(text) as Problem) : other(), retryAfter >= 0 ? retryAfter : undefined);
}

export class Connection {
  readonly signal: AbortSignal;
  readonly #own = new AbortController();

  constructor(private readonly url: string, private readonly outer: AbortSignal | undefined) {
    this.signal = AbortSignal.any([this.#own.signal, ...(outer ? [outer] : [])]);
  }

  /** Wait for a part of the answer. One that takes longer, in milliseconds, ends the connection. */
  async part<T>(longest: number, ask: () => Promise<T>): Promise<T> {
    const timer = setTimeout(() => this.close(), longest);
    try {
      return await ask();
    } catch (cause) {
      this.outer?.throwIfAborted();
      const detail = `no answer of the gateway ${this.url} (${cause}); check its address, and that it runs`;
      throw new PerdureError(problem(0, "GATEWAY_UNREACHABLE", detail), undefined, { cause });
    } finally {
      clearTimeout(timer);
    }
  }

  close(): void {
    this.#own.abort();
  }
}

/** A message of a stream of server-sent events; a comment has none of the fields. */
type Message = Partial<Record<string, string>>;

export async function* messagesOf(body: ReadableStream<Uint8Array>, connection: Connection, silence: number): AsyncGenerator<Message> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  for (let rest = ""; ; ) {
    const { done, value } = await connection.part(silence, () => reader.read());
    if (done) return; // without a message that is not complete
    const blocks = (rest + decoder.decode(value, { stream: true })).split(/\r?\n\r?\n/);
    rest = blocks.pop() ?? "";
    yield* blocks.map(messageOf);
  }
}

/** A gateway sends its data in one line. Only a line feed ends a line: texts may have other separators. */
function messageOf(block: string): Message {
  const fields = block.split(/\r?\n/).map((line) => /^(\w*): ?([^]*)$/.exec(line) ?? []);
  return Object.fromEntries(fields.map(([, name = "", value]) => [name, value]));
}

export async function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  await new Promise<unknown>((resolve) => {
    timer = setTimeout(resolve, signal?.aborted ? 0 : ms);
    signal?.addEventListener("abort", resolve, { once: true });
  });
  clearTimeout(timer);
  signal?.throwIfAborted();
}
