// The effects of a turn that has ended, and a way to take one back.

import { path, post } from "./api.js";
import { may } from "./caller.js";
import { ask } from "./dialogs.js";
import { h } from "./dom.js";
import { hashOf, json, turnLink } from "./parts.js";

const STATUS = {
  done: "done",
  unknown: "outcome unknown",
  absent: "not there",
  undone: "taken back",
};

/** A list of effects. `onDone` is called when one is being taken back. */
export function effectList(turnId, effects, onDone) {
  return h(
    "ul.tree",
    null,
    effects.map((effect) =>
      h(
        "li",
        null,
        h(
          "div.line",
          null,
          h("span", null, h("code", null, effect.tool), ` · ${STATUS[effect.status]}`),
          canUndo(effect) ? undoButton(turnId, effect, onDone) : null,
        ),
        h(
          "p.small.muted",
          null,
          `step ${effect.step} · `,
          ofDelegate(turnId, effect),
          effect.arguments,
        ),
      ),
    ),
  );
}

function canUndo(effect) {
  return effect.status === "done" && effect.undo && may("decide");
}

function ofDelegate(turnId, { turn_id }) {
  return turn_id === turnId ? "" : [turnLink(turn_id), " · "];
}

function undoButton(turnId, effect, onDone) {
  const undo = async () => {
    const started = await ask({
      title: `Undo ${effect.tool}?`,
      about: [
        "A turn of its own takes this effect back. It may wait for approval.",
        json(effect.arguments),
      ],
      action: "Undo",
      danger: true,
      send: () => post(path("turns", effect.turn_id, "undo"), { call_id: effect.call_id }),
    });
    if (!started) return;
    location.hash = hashOf("turns", started.id);
    onDone();
  };
  return h("button", { type: "button", onclick: undo }, "Undo");
}
