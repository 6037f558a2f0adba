// Drives threads with the client of AG-UI: node agui_client.js URL TOKEN
const { HttpAgent } = require("@ag-ui/client");

function agentOf(base, token, name, threadId) {
  const headers = { Authorization: `Bearer ${token}` };
  const agent = new HttpAgent({ url: `${base}/agui/${name}`, headers, threadId });
  const runs = [];
  const run = async (parameters) => {
    const seen = [];
    const { result } = await agent.runAgent(parameters, {
      onEvent: ({ event }) => {
        seen.push(event.type);
      },
    });
    const interrupts = agent.pendingInterrupts.map((one) => one.subagentRunId ?? "");
    runs.push({ seen, result, interrupts });
  };
  const approve = () => {
    const answered = { status: "resolved", payload: { approved: true } };
    const resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, ...answered }));
    return run({ resume });
  };
  const say = (id, content) => {
    agent.addMessage({ id, role: "user", content });
    return run();
  };
  return { agent, runs, run, say, approve };
}

async function main() {
  const [base, token] = process.argv.slice(2);
  const desk = agentOf(base, token, "desk", "js-1");
  await desk.say("m-1", "It is lost.");
  await desk.approve();
  await desk.say("m-2", "Thanks.");

  const editor = agentOf(base, token, "editor", "js-2");
  await editor.say("m-1", "Pay.");
  await editor.approve();

  const other = agentOf(base, token, "desk", "js-1");
  await other.run();

  const guide = agentOf(base, token, "guide", "js-3");
  const tools = [{ name: "locate", description: "Where the user is.", parameters: {} }];
  guide.agent.addMessage({ id: "m-1", role: "user", content: "Where am I?" });
  await guide.run({ tools });
  const asked = guide.agent.messages.at(-1).toolCalls;
  for (const { id } of asked)
    guide.agent.addMessage({ id: `r-${id}`, role: "tool", toolCallId: id, content: "Bern" });
  await guide.run({ tools });

  const teller = agentOf(base, token, "editor?delegates=true", "js-4");
  await teller.say("m-1", "Find it.");
  const below = teller.agent.messages.filter((one) => one.subagentRunId);
  await teller.say("m-2", "Thanks.");
  console.log(
    JSON.stringify({
      desk: desk.runs,
      editor: editor.runs,
      messages: desk.agent.messages,
      others: other.agent.messages,
      guide: guide.runs,
      teller: teller.runs,
      below,
    }),
  );
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
