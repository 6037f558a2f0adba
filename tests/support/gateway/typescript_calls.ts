// Calls of the client, for the compiler: what is right, and what has to be an error.
import { Perdure, type TurnStatus, type TurnEntry } from "./index.js";

export async function calls(perdure: Perdure): Promise<void> {
  const turn = await perdure.start("desk", "Help.", { labels: { team: "a" }, budget: { usd: "0.50" }, live: true });
  const status: TurnStatus = await perdure.request("get", "/v1/turns/{id}", { path: turn, query: { wait: 30 } });
  const spent: string | null | undefined = status.spent?.usd;
  for await (const entry of perdure.list("/v1/turns", { query: { state: "running" } })) {
    const known: TurnEntry = entry;
    console.log(known.id, spent);
  }
  for await (const event of turn.events({ include: ["arguments"] })) {
    if (event.kind === "model_answered") console.log(event.calls?.map((call) => call.arguments));
    // @ts-expect-error - only an answer has calls
    if (event.kind === "decided") console.log(event.calls);
  }
  await perdure.request("post", "/v1/schedules", { body: { id: "a", agent: "desk", task: "Help.", cron: "0 2 * * *", timezone: "UTC" } });
  // @ts-expect-error - a schedule needs a body
  await perdure.request("post", "/v1/schedules", {});
  // @ts-expect-error - there is no such field
  await perdure.start("desk", "Help.", { taks: 1 });
  // @ts-expect-error - the path has an id
  await perdure.request("get", "/v1/turns/{id}", {});
  // @ts-expect-error - there is no such operation
  await perdure.request("post", "/v1/turn", {});
  // @ts-expect-error - this list has no pages
  perdure.list("/v1/approvals", {});
  // @ts-expect-error - there is no such state
  perdure.list("/v1/turns", { query: { state: "lost" } });
}
