"""An orchestrator with a researcher and a writer: two facts found at once, then a text, under one
budget. `python examples/orchestrator.py`.
"""

import asyncio

from perdure import Agent, Budget, Delegate, Registry, tool
from perdure.testing import ByTask, ScriptedModel, call, calls, local_runtime, says


@tool(read_only=True)
def search_handbook(words: str) -> str:
    """Find a passage in the handbook."""
    return {"notice": "Notice is 30 days.", "who": "Either side may give it."}[words]


researcher = Agent(
    name="researcher", description="Finds facts in the handbook.", model="openai:gpt-5-mini"
)
writer = Agent(name="writer", description="Writes short texts.", model="openai:gpt-5-mini")
editor = Agent(
    name="editor",
    instructions="Have facts found, then have the text written.",
    model="openai:gpt-5-mini",
    tools=[search_handbook],  # the researcher inherits it, the writer does not
    delegates=["researcher", Delegate("writer", inherit=False)],
)


async def main() -> None:
    tasks = [
        {"agent": "researcher", "task": "How long is notice?"},
        {"agent": "researcher", "task": "Who may give it?"},
    ]
    models = {
        "editor": ScriptedModel(
            calls(call("spawn_agents", tasks=tasks)),
            calls(
                call(
                    "delegate_to_agent",
                    agent="writer",
                    task="Write: notice is 30 days; either side may give it.",
                )
            ),
            says("Either side may give 30 days' notice."),
        ),
        "researcher": ByTask(  # two turns at once, each with a script
            {
                "How long is notice?": ScriptedModel(
                    calls(call("search_handbook", words="notice")), says("30 days")
                ),
                "Who may give it?": ScriptedModel(
                    calls(call("search_handbook", words="who")), says("either side")
                ),
            }
        ),
        "writer": ScriptedModel("Either side may give 30 days' notice."),
    }
    async with local_runtime(Registry([editor, researcher, writer]), model=models) as client:
        report = await client.run(
            "editor", "A sentence on notice, please.", id="page-7", budget=Budget(model_calls=20)
        )
    print(report.output)
    for child in report.children:
        print(f"{child.turn_id}: {child.outcome}, model calls: {child.spent.model_calls}")


if __name__ == "__main__":
    asyncio.run(main())
