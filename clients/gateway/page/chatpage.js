// A page that is a chat and nothing else: chat.html#agent=support&session=customer-42.

import { fill, h } from "./dom.js";
import { tokenForm } from "./caller.js";
import "./chat.js";

const main = document.getElementById("main");

function start() {
  const named = new URLSearchParams(location.hash.slice(1));
  const chat = h("perdure-chat", { agent: named.get("agent"), session: named.get("session") });
  fill(main, h("h1.unseen", null, "Chat"), chat);
}

addEventListener("unauthenticated", (event) => fill(main, tokenForm(event.detail, start)));
addEventListener("hashchange", start);
start();
