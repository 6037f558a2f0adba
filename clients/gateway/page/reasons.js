// Why a turn ended without an answer, in the words of a person who looks at a page.

import { h } from "./dom.js";

const REASONS = {
  TURN_BUDGET_EXCEEDED: [
    "The budget is used up",
    "Resume with a larger budget, or fork from a step.",
  ],
  MAX_ITERATIONS: ["All steps are used up", "Resume with more steps, or fork from a step."],
  TURN_CANCELLED: ["Cancelled", "Resume it to go on where it ended."],
  TURN_TIMEOUT: ["The deadline has passed", "Resume it, or start it again with a later deadline."],
  TURN_TERMINATED: ["Terminated in Temporal", "It ran no code at its end. Fork it to go on."],
  LOOP_DETECTED: [
    "The model repeated itself",
    "Fork from an earlier step and say what to do instead.",
  ],
  OUTPUT_INVALID: ["The answer does not have its type", ""],
  GUARDRAIL: ["A guardrail has refused it", ""],
  TOOL_RESOLVER: ["Its tools could not be found", "Look at the agent, and resume."],
  EFFECT_UNKNOWN: ["Nobody knows whether a call took effect", "Settle the call, and resume."],
  TOO_LARGE: ["It has grown too large", "Start a smaller task."],
  LLM_AUTH: ["The provider refuses the key", "Correct the key of the worker, and resume."],
  LLM_RATE_LIMIT: ["The provider limits the rate", "Resume later."],
  LLM_BUDGET_EXCEEDED: ["The budget at the provider is used up", "Add to it, and resume."],
  LLM_TIMEOUT: ["The provider did not answer in time", "Resume later."],
  LLM_UNAVAILABLE: ["The provider is not available", "Resume later."],
  LLM_INVALID_REQUEST: ["The provider refuses the request", ""],
  LLM_REFUSED: ["The model refuses to answer", ""],
  UNKNOWN_PRICE: ["The price of a model is not known", "Add it to the worker, and resume."],
  MODEL_CHAIN_EXHAUSTED: ["No model of the chain has answered", "Resume later."],
  UNKNOWN_AGENT: ["No worker has this agent", "Start a worker that has it, and resume."],
  CONFIGURATION: ["The set-up is wrong", "Correct it, and resume."],
};
const PROGRAM = /; (raise|or go on|go on)\b[^;]*turn\.resume\(.*$/s;

/** The reason of a code in a few words. */
export function reasonOf(code) {
  return REASONS[code]?.[0] ?? code.toLowerCase().replaceAll("_", " ");
}

/** What happened to a turn, and what to do about it here. */
export function reason({ code, message }) {
  const [title, advice] = REASONS[code] ?? [reasonOf(code), ""];
  const said = message.replace(PROGRAM, ".");
  return h(
    "div.problem",
    null,
    h("strong", null, title),
    " ",
    h("code.small", null, code),
    h("p", null, said),
    advice ? h("p.advice", null, advice) : null,
  );
}
