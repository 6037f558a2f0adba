// Uses each part of the client once: node typescript_tour.mjs CLIENT URL TOKEN FILE
import { readFileSync } from "node:fs";

const [client, url, token, file] = process.argv.slice(2);
const { Perdure, PerdureError } = await import(client);
const perdure = new Perdure(url, () => token, { patience: 2_000 });

async function failing(ask) {
  try {
    await ask();
  } catch (error) {
    if (!(error instanceof PerdureError)) return { name: error.name, message: error.message };
    const { code, message, problem } = error;
    return { code, message, status: problem.status, pointers: (problem.errors ?? []).map((one) => one.pointer) };
  }
  return null;
}

async function all(items) {
  const seen = [];
  for await (const item of items) seen.push(item);
  return seen;
}

const labels = { team: "ts" };
const begun = [];
for (const task of ["refund", "refund"]) begun.push((await perdure.start("desk", task, { id: "ts/refund", labels })).id);
const refund = perdure.turn(begun[0]);
const conflict = await failing(() => perdure.start("desk", "other", { id: "ts/refund" }));
const { waits } = await refund.status({ wait: 30 });
const aborting = new AbortController();
const aborted = await failing(async () => {
  for await (const item of refund.live({ signal: aborting.signal })) if (item.kind === "caught_up") aborting.abort();
});
await refund.approve(waits[0].call, { reason: "fine" });
const late = await failing(() => refund.deny(waits[0].call));
const refunded = await refund.result();
const events = await all(refund.events());
const rest = await all(refund.events({ after: events[1].cursor, include: ["arguments"] }));

const asks = await perdure.start("desk", "ask", { labels });
const question = (await asks.status({ wait: 30 })).waits[0].call;
await asks.answer(question, "green");
const answered = await asks.result();

const deploys = await perdure.start("desk", "deploy", { labels });
let finished;
for await (const event of deploys.events())
  if (event.kind === "tool_returned" && event.is_job) {
    const call = readFileSync(file, "utf8");
    const finish = () => perdure.request("post", "/v1/calls/{token}", { path: { token: call }, body: { result: "up" } });
    finished = [await finish(), await finish()];
  }

const session = perdure.session("ts-chat");
const said = await session.say("hello", { id: "m-1", begin: { agent: "desk", live: true } });
const again = await session.say("hello", { id: "m-1" });
const pieces = await all(said.text());
const messages = await session.messages();

const cancelled = await perdure.start("desk", "refund too", { labels });
await cancelled.status({ wait: 30 });
const cancel = await cancelled.cancel("not needed");
const over = await cancelled.result();

const batch = await perdure.request("post", "/v1/batches", {
  body: { id: "ts-batch", agent: "desk", tasks: [{ id: "a", task: "hello" }, { id: "b", task: "hello" }] },
});
const results = await all(perdure.stream("/v1/batches/{id}/results", { path: batch }));
const schedule = await perdure.request("post", "/v1/schedules", {
  body: { id: "ts-nightly", agent: "desk", task: "hello", cron: "0 2 * * *", timezone: "UTC" },
});
const listed = await all(perdure.list("/v1/schedules", {}));
await perdure.request("delete", "/v1/schedules/{id}", { path: schedule });

console.log(
  JSON.stringify({
    begun,
    conflict,
    late,
    aborted,
    refunded,
    kinds: events.map((one) => one.kind),
    rest: rest.map((one) => one.cursor),
    cursors: events.map((one) => one.cursor),
    asked: rest.flatMap((one) => one.calls ?? []),
    answered: answered.output,
    finished,
    deployed: (await deploys.result()).output,
    turns: [said.id, again.id],
    pieces,
    messages: messages.map((one) => one.role),
    cancel,
    over: [over.outcome, over.error.code],
    results: results.map((one) => one.id),
    listed: listed.map((one) => one.id),
    pages: [
      await all(perdure.list("/v1/turns", { query: { limit: 1, label: ["team=ts"] } })),
      await all(perdure.list("/v1/turns", { query: { label: ["team=ts"] } })),
    ].map((turns) => turns.map((one) => one.id)),
    missing: await failing(() => perdure.turn("ts/nothing").status()),
    invalid: await failing(() => perdure.start("desk", "hello", { taks: 1 })),
    stranger: await failing(() => new Perdure(url, "wrong").turn("ts/refund").result()),
    away: await failing(() => new Perdure("http://127.0.0.1:9", token, { patience: 0 }).turn("a").status()),
  }),
);
