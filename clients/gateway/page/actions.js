// What a person does to turns: start, steer, pay, cancel, fork, resume. Each says what it costs.

import { path, post, randomId } from "./api.js";
import { may } from "./caller.js";
import { ask } from "./dialogs.js";
import { h } from "./dom.js";
import { money, plural } from "./format.js";
import { hashOf } from "./parts.js";

/** What a new turn with the limits of this one may spend. */
function price({ budget, max_iterations: most }) {
  const usd = budget?.usd ? `at most ${money(budget.usd)}` : "money without a limit";
  const tokens = budget?.tokens ? `, ${plural(budget.tokens, "token")}` : "";
  return `${usd}${tokens}${most ? `, in at most ${plural(most, "step")}` : ""}`;
}

const USD = {
  name: "usd",
  label: "Budget in US dollars",
  inputmode: "decimal",
  placeholder: "0.50",
};

const budgetOf = (values) => (values.usd ? { usd: values.usd.replace(",", ".") } : null);

function go(reference) {
  if (reference?.id) location.hash = hashOf("turns", reference.id);
}

function optional(values) {
  return Object.fromEntries(
    Object.entries(values).filter(([, value]) => value !== "" && value !== null),
  );
}

/** What a person may say about a new turn besides its task; `settingsOf` reads the values. */
function settings() {
  const limits = [
    { name: "max_iterations", label: "At most so many steps", inputmode: "numeric" },
    { name: "max_output_tokens", label: "Tokens of each answer, at most", inputmode: "numeric" },
  ];
  return {
    title: "Labels, context and options",
    fields: [
      {
        name: "labels",
        label: "Labels",
        type: "textarea",
        rows: 2,
        placeholder: "customer=4711",
        hint: "One on a line, as name=value. They are in lists, and go with every tool call.",
      },
      {
        name: "context",
        label: "Context",
        type: "textarea",
        hint: "Material for the task, such as a document. It is placed before it.",
      },
      { name: "context_name", label: "Name of the context", value: "context" },
      {
        name: "allowed_tools",
        label: "Allowed tools",
        placeholder: "search, read_file",
        hint: "Their names, with commas. Empty for all tools of the agent.",
      },
      { name: "deadline", label: "Ends after so many minutes", inputmode: "decimal" },
      ...(may("budget") ? limits : []),
      { name: "temperature", label: "Temperature", inputmode: "decimal" },
      {
        name: "tool_choice",
        label: "Tool choice",
        type: "select",
        options: [
          ["", "That of the agent"],
          ["auto", "auto"],
          ["required", "required"],
          ["none", "none"],
        ],
      },
    ],
  };
}

/** The fields of `POST /v1/turns` for the values of `settings`, without those that are empty. */
export function settingsOf(values) {
  const { labels, context, context_name: name, allowed_tools: tools, deadline } = values;
  const options = optional({
    temperature: numberOf(values, "temperature"),
    max_output_tokens: numberOf(values, "max_output_tokens"),
    tool_choice: values.tool_choice ?? "",
  });
  return optional({
    labels: labels ? labelsOf(labels) : "",
    context: context ? { [name || "context"]: context } : "",
    allowed_tools: tools ? tools.split(",").map((one) => one.trim()) : "",
    deadline: deadline ? `PT${numberOf(values, "deadline") * 60}S` : "",
    max_iterations: numberOf(values, "max_iterations"),
    options: Object.keys(options).length ? options : "",
  });
}

function labelsOf(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  return Object.fromEntries(
    lines.map((line) => {
      const place = line.indexOf("=");
      if (place < 1) throw new Error(`A label is name=value, and not ${line}`);
      return [line.slice(0, place).trim(), line.slice(place + 1).trim()];
    }),
  );
}

function numberOf(values, name) {
  const text = values[name] ?? "";
  if (text === "") return "";
  const number = Number(text.replace(",", "."));
  if (Number.isNaN(number)) throw new Error(`${name.replaceAll("_", " ")}: ${text} is no number`);
  return number;
}

export async function startTurn(agents) {
  const id = randomId();
  go(
    await ask({
      title: "Start a turn",
      about: [
        "The turn spends money until it ends, up to its budget, or else to that of its agent.",
      ],
      fields: [
        { name: "agent", label: "Agent", value: agents[0] ?? "", list: "agents" },
        { name: "task", label: "Task", type: "textarea" },
        ...(may("budget") ? [{ ...USD, hint: "Empty for the budget of the agent." }] : []),
      ],
      more: settings(),
      action: "Start",
      send: ({ agent, task, ...values }) =>
        post(
          "v1/turns",
          {
            agent,
            task,
            live: true,
            ...optional({ budget: budgetOf(values) }),
            ...settingsOf(values),
          },
          `${agent}/${id}`,
        ),
    }),
  );
}

function steer(turn) {
  const key = randomId();
  return ask({
    title: "Send a message",
    about: ["The model reads it with its next call. It stays within the budget of the turn."],
    fields: [
      { name: "text", label: "Message", type: "textarea" },
      {
        name: "now",
        label: "Now: stop a running model call, which is charged and made again",
        type: "checkbox",
      },
    ],
    action: "Send",
    send: (values) => post(path("turns", turn.id, "steer"), values, key),
  });
}

export function topUp(turn) {
  const has = turn.budget ?? {};
  const wants = new Set(turn.waits.map((one) => one.kind));
  const fields = [
    ...(has.usd
      ? [
          {
            ...USD,
            label: "Add US dollars",
            hint: `Now ${money(has.usd)}, of which ${money(turn.spent.usd)} are spent.`,
          },
        ]
      : []),
    ...(has.tokens ? [{ name: "tokens", label: "Add tokens", inputmode: "numeric" }] : []),
    ...(turn.max_iterations
      ? [
          {
            name: "iterations",
            label: "Add steps",
            inputmode: "numeric",
            hint: `Now at most ${turn.max_iterations}.`,
          },
        ]
      : []),
  ];
  if (wants.has("iterations")) fields.reverse();
  return ask({
    title: "Top up",
    about: ["The turn may spend this in addition. If it waits for that, it goes on at once."],
    fields,
    action: "Add",
    send: (values) => post(path("turns", turn.id, "add-budget"), moreOf(values)),
  });
}

function moreOf({ usd, tokens, iterations }) {
  const budget = optional({
    usd: usd?.replace(",", ".") ?? "",
    tokens: tokens ? Number(tokens) : "",
  });
  return optional({
    budget: Object.keys(budget).length ? budget : "",
    iterations: iterations ? Number(iterations) : "",
  });
}

function cancel(turn) {
  return ask({
    title: "Cancel the turn",
    about: [
      "It ends within seconds, with its delegates.",
      `${money(turn.spent.usd)} are spent and stay spent; what tools did stays done.`,
    ],
    fields: [{ name: "reason", label: "Reason", hint: "It is recorded in the result." }],
    action: "Cancel the turn",
    danger: true,
    send: (values) => post(path("turns", turn.id, "cancel"), values),
  });
}

async function fork(turn) {
  go(
    await ask({
      title: "Fork the turn",
      about: [
        "A new turn goes on from a step of this one, which stays as it is." +
          ` It may spend ${price(turn)}.`,
        "Tools may run again, with what they do in the world.",
      ],
      fields: [
        {
          name: "at_step",
          label: "From step",
          value: String(turn.steps),
          inputmode: "numeric",
          hint: `0 for the task alone, ${turn.steps} for the last complete step.`,
        },
        { name: "say", label: "Message", type: "textarea", hint: "Needed after a last answer." },
        ...(may("budget") ? [{ ...USD, hint: "Empty for the budget of this turn." }] : []),
      ],
      action: "Fork",
      send: ({ at_step: step, say, ...values }) =>
        post(
          path("turns", turn.id, "fork"),
          optional({ at_step: step === "" ? null : Number(step), say, budget: budgetOf(values) }),
        ),
    }),
  );
}

async function resume(turn) {
  const ended = turn.outcome !== null;
  go(
    await ask({
      title: "Resume the turn",
      about: [
        ended
          ? `A new turn goes on where this one ended. It may spend ${price(turn)}.`
          : "The turn asks its provider again, within its budget.",
      ],
      fields:
        ended && may("budget")
          ? [
              { ...USD, hint: "Empty for the budget of this turn." },
              {
                name: "max_iterations",
                label: "At most so many steps",
                inputmode: "numeric",
                hint: "Empty for the limit of this turn.",
              },
            ]
          : [],
      action: "Resume",
      send: (values) =>
        post(
          path("turns", turn.id, "resume"),
          optional({
            budget: budgetOf(values),
            max_iterations: numberOf(values, "max_iterations"),
          }),
        ),
    }),
  );
}

/**
 * The buttons of a turn, those that its state and the permissions of the caller allow. `latest`
 * returns its status when one is pressed.
 */
export function buttons(turn, latest, onDone) {
  const over = turn.outcome !== null;
  const limited = turn.budget?.usd || turn.budget?.tokens || turn.max_iterations;
  const resumes = over
    ? turn.outcome !== "completed"
    : turn.waits.some((one) => one.kind === "resume" || one.kind === "provider");
  const offered = [
    [!over && may("control"), "Steer", steer],
    [!over && may("budget") && limited, "Top up", topUp],
    [resumes && may("start"), "Resume", resume],
    [may("start"), "Fork", fork],
    [!over && may("control"), "Cancel", cancel],
  ];
  return h(
    "div.buttons.actions",
    { role: "group", "aria-label": "Actions" },
    offered
      .filter(([is]) => is)
      .map(([, label, action]) =>
        h(
          label === "Cancel" ? "button.danger" : "button",
          {
            type: "button",
            onclick: async () => {
              await action(latest());
              onDone();
            },
          },
          label,
        ),
      ),
  );
}
