/** The text of a turn's model over several connections. */
import type { LiveItem, TurnEvent } from "./schema.js";

type Live<K extends LiveItem["kind"]> = Required<Extract<LiveItem, { kind: K }>>;
/** Before the text of a step. */
export type TextBegins = Live<"text_begins">;
/** The text since the last `TextBegins` does not count. Another one follows if the step is tried again. */
export type TextVoid = Live<"text_void">;
/** An event, live text, the progress of a tool, or the mark after what was there at the beginning. */
export type TurnItem = TurnEvent | Live<"text"> | TextBegins | TextVoid | Live<"tool_progress"> | Live<"caught_up">;

/** Text that no event has recorded yet. */
interface Unrecorded {
  begins: TextBegins;
  said: string;
  /** What a new connection has sent of it again. */
  repeated?: string;
}

/**
 * A new connection sends text that is not recorded again, from its beginning. What is known of it is left out here, and a
 * text that has become another one meanwhile is void.
 */
export class Text {
  #text: Unrecorded | undefined;

  reattached(): void {
    if (this.#text) this.#text.repeated = "";
  }

  /** What follows from the next item of the stream. */
  *see(item: TurnItem): Generator<TurnItem> {
    const text = this.#text;
    if (item.kind === "text" && text?.repeated !== undefined) return yield* this.#repeat(text, item);
    if (item.kind === "text_begins") {
      if (text?.repeated === "" && isOf(item, text)) return;
      if (text) yield voided(text);
      this.#text = { begins: item, said: "" };
    } else if (item.kind === "text" && text) {
      text.said += item.text;
    } else if (item.kind === "text_void") {
      this.#text = undefined;
    } else if (text && ends(item, text)) {
      const isRecorded = item.kind === "model_answered" && (text.repeated ?? text.said) === text.said;
      if (!isRecorded) yield voided(text); // an unbroken connection has said so before
      this.#text = undefined;
    }
    yield item;
  }

  *#repeat(text: Unrecorded, item: Live<"text">): Generator<TurnItem> {
    const { begins, said } = text;
    const repeated = (text.repeated += item.text);
    if (said.startsWith(repeated)) return;
    const isSame = repeated.startsWith(said);
    if (!isSame) yield* [voided(text), begins];
    this.#text = { begins, said: repeated };
    yield { ...item, text: isSame ? repeated.slice(said.length) : repeated };
  }
}

const voided = ({ begins }: Unrecorded): TextVoid => ({ ...begins, kind: "text_void" });
const isOf = (item: { step: number | null; attempt: number | null }, { begins }: Unrecorded) => item.step === begins.step && item.attempt === begins.attempt;

/** Whether an event ends the call of the model that said this. */
function ends(item: TurnItem, text: Unrecorded): boolean {
  if (item.kind === "turn_ended" || (item.kind === "scheduled" && item.activity === "model")) return true;
  return (item.kind === "model_answered" || (item.kind === "call_failed" && item.tool === null)) && isOf(item, text);
}
