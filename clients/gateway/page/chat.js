// A chat for the users of a product, <perdure-chat agent="support" session="customer-42">, from
// this one file, which brings what it needs from beside it. It shows messages and answers, and asks
// the questions of the agent; calls, costs and delegates stay with those who operate it.
//
// `token` of "./api.js" has the bearer token of the user; the element takes it from `chat.token`.

import { Problem, follow, followTurn, get, path, post, randomId, token } from "./api.js";
import { written } from "./detail.js";
import { fill, h, seen, words } from "./dom.js";
import { problem } from "./dialogs.js";
import { question } from "./question.js";

const STYLE = new URL("chat.css", import.meta.url).href;
const SOON = 150;

class PerdureChat extends HTMLElement {
  #stop = null;
  #isBegun = false;
  #timer = null;
  #turn = null;
  #live = null;

  /** The bearer token of the user. */
  set token(value) {
    token.set(value);
    if (this.isConnected) this.#begin();
  }

  connectedCallback() {
    const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
    this.session ||= this.getAttribute("session") || `chat-${randomId()}`;
    this.said = h("div.said", { role: "log", "aria-label": "Messages", tabindex: 0 });
    this.past = h("div.part");
    this.now = h("div.part");
    this.trouble = h("div");
    this.said.append(this.past, this.now, this.trouble);
    fill(root, h("link", { rel: "stylesheet", href: STYLE }), this.said, this.#form());
    this.#begin();
  }

  disconnectedCallback() {
    this.#stop?.abort();
  }

  async #begin() {
    this.#stop?.abort();
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    this.#turn = null;
    try {
      await get(path("sessions", this.session), {}, signal);
      this.#isBegun = true;
      this.#refresh();
      await follow(path("sessions", this.session, "events"), {
        signal,
        onMessage: () => this.#soon(),
      });
    } catch (error) {
      if (!signal.aborted && error.status !== 404) this.#fail(error); // the first message begins it
    }
  }

  #soon() {
    this.#timer ??= setTimeout(() => this.#refresh(), SOON);
  }

  async #refresh() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const { signal } = this.#stop;
    try {
      const [status, { messages }] = await Promise.all([
        get(path("sessions", this.session), {}, signal),
        get(path("sessions", this.session, "messages"), {}, signal),
      ]);
      fill(this.trouble);
      this.#show(messages.filter((one) => one.role === "user" || one.role === "assistant"));
      this.#run(status.turn);
      this.box.disabled = status.state === "closed";
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    }
  }

  /** Show the messages of turns that are over. */
  #show(messages) {
    const shown = messages.flatMap((message) => {
      const text = message.parts.filter((one) => one.type === "text").map((one) => one.text);
      return text.length ? [[message.role, text.join("\n\n")]] : [];
    });
    const state = JSON.stringify(shown);
    if (this.past.state === state) return;
    this.past.state = state;
    fill(
      this.past,
      shown.map(([role, text]) => bubble(role, text)),
    );
    this.#toEnd();
  }

  /** Show the turn that runs: the message it answers, and the answer while it is generated. */
  #run(turnId) {
    if (turnId === this.#turn) return;
    this.#live?.abort();
    this.#turn = turnId;
    fill(this.now);
    if (!turnId) return;
    this.#live = new AbortController();
    const view = new Answer(this.now, turnId, () => this.#toEnd());
    followTurn(turnId, {
      query: { include: ["task"] },
      signal: AbortSignal.any([this.#stop.signal, this.#live.signal]),
      onMessage: (event) => view.see(event),
    }).catch((error) => {
      if (!(error instanceof Problem && error.status === 404)) this.#fail(error);
    });
  }

  #form() {
    this.box = h("textarea", {
      rows: 1,
      dir: "auto",
      "aria-label": "Message",
      placeholder: "Message",
    });
    const form = h("form.compose", null, this.box, h("button.primary", { type: "submit" }, "Send"));
    let key = randomId();
    const send = async (event) => {
      event.preventDefault();
      const text = this.box.value.trim();
      if (!text) return;
      this.box.readOnly = true;
      try {
        const agent = this.getAttribute("agent");
        const begin = agent ? { begin: { agent, live: true } } : {};
        await post(path("sessions", this.session, "messages"), { text, ...begin }, key);
        this.box.value = "";
        key = randomId();
        fill(this.trouble);
        if (this.#isBegun) this.#refresh();
        else this.#begin();
      } catch (error) {
        this.#fail(error);
      }
      this.box.readOnly = false;
    };
    form.addEventListener("submit", send);
    this.box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
    });
    return form;
  }

  #fail(error) {
    fill(this.trouble, problem(error));
    this.#toEnd();
  }

  #toEnd() {
    this.said.scrollTop = this.said.scrollHeight;
  }
}

function bubble(role, text) {
  const isUser = role === "user";
  return h(
    isUser ? "div.user" : "div.agent",
    { dir: "auto" },
    h("span.unseen", null, isUser ? "You: " : "Answer: "),
    isUser ? words(text) : written(text),
  );
}

/** The running turn, for somebody who waits for its answer. */
class Answer {
  constructor(element, turnId, onChange) {
    this.turnId = turnId;
    this.onChange = onChange;
    this.draft = h("div.agent", { dir: "auto" }, h("span.dots", null, "···"));
    this.before = h("div.part");
    this.asks = h("div");
    fill(element, this.before, this.draft, this.asks);
    this.text = null;
  }

  see(event) {
    SEEN[event.kind]?.call(this, event);
    this.onChange();
  }

  wait(text) {
    this.text = null;
    fill(
      this.draft,
      h("span.dots", { "aria-hidden": "true" }, "···"),
      text ? h("span.muted", null, ` ${text}`) : null,
    );
  }

  /** Ask the user the questions of the agent; other calls wait for those who operate it. */
  async ask() {
    const { waits } = await get(path("turns", this.turnId));
    const questions = waits.filter((one) => one.call?.question);
    fill(
      this.asks,
      questions.map((one) => this.form(one)),
    );
    this.wait(questions.length || !waits.length ? "" : "waits for a person who looks at it");
    this.onChange();
  }

  form({ turn_id: id, call }) {
    const trouble = h("div");
    const send = async (answer) => {
      const named = JSON.stringify({ call_id: call.call_id, token: call.token });
      try {
        await post(path("turns", id, "answer"), `${named.slice(0, -1)},"answer":${answer}}`);
        form.remove();
      } catch (error) {
        fill(trouble, problem(error));
      }
    };
    const asked = question(call.question, send, () =>
      post(path("turns", id, "login"), { call_id: call.call_id }),
    );
    const form = h("div.agent", null, asked.shown, asked.fields, trouble);
    return form;
  }
}

const SEEN = {
  turn_started(event) {
    if (event.text) fill(this.before, bubble("user", event.text));
  },
  said(event) {
    this.before.append(bubble("user", event.text ?? ""));
  },
  text_begins() {
    this.text = document.createTextNode("");
    fill(this.draft, h("span", { class: "words" }, this.text));
  },
  text(event) {
    this.text?.appendData(seen(event.text));
  },
  text_void() {
    this.wait("");
  },
  model_answered(event) {
    if (event.text && event.calls.length) this.before.append(bubble("assistant", event.text));
    if (event.text && !event.calls.length) fill(this.draft, written(event.text));
    else this.wait("");
  },
  wait_began() {
    this.ask().catch(() => {});
  },
  wait_ended() {
    fill(this.asks);
    this.wait("");
  },
  turn_ended(event) {
    fill(this.asks);
    if (event.outcome !== "completed")
      fill(this.draft, h("span.muted", null, "There is no answer this time."));
  },
};

customElements.define("perdure-chat", PerdureChat);
