// Drives a thread with the client of AG-UI: node agui_client.js URL TOKEN
const { HttpAgent } = require("@ag-ui/client");

async function main() {
  const [url, token] = process.argv.slice(2);
  const agent = new HttpAgent({
    url,
    headers: { Authorization: `Bearer ${token}` },
    threadId: "js",
  });
  const runs = [];
  const run = async (parameters) => {
    const seen = [];
    const { result } = await agent.runAgent(parameters, {
      onEvent: ({ event }) => {
        seen.push(event.type);
      },
    });
    runs.push({ seen, result, interrupts: agent.pendingInterrupts.length });
  };

  agent.addMessage({ id: "m-1", role: "user", content: "lost" });
  await run({ runId: "r-1" });
  const [interrupt] = agent.pendingInterrupts;
  const answer = { interruptId: interrupt.id, status: "resolved", payload: { approved: true } };
  await run({ runId: "r-2", resume: [answer] });
  agent.addMessage({ id: "m-2", role: "user", content: "Thanks." });
  await run({ runId: "r-3" });

  const other = new HttpAgent({ url, headers: agent.headers, threadId: "js" });
  await other.runAgent({ runId: "r-4" });
  const failed = await other
    .runAgent({ runId: "r-5", tools: [{ name: "alert", description: "Show." }] })
    .then(() => "", (error) => String(error.message ?? error));
  console.log(JSON.stringify({ runs, messages: agent.messages, other: other.messages, failed }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
