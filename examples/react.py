"""An agent for a model without tool calls.

With a model of yours: `perdure dev examples.react:app`; without: `python examples/react.py`.
"""

import asyncio

from perdure import Agent, Thinking, tool
from perdure.testing import ScriptedModel, local_runtime
from perdure.worker import AgentWorker


@tool(read_only=True)
def look_up(words: str) -> str:
    """Look something up in the handbook."""
    return {"notice period": "30 days"}.get(words, "nothing found")


clerk = Agent(
    name="clerk",
    model="ollama:gemma3:4b",
    instructions="Answer from the handbook.",
    tools=[look_up],
    protocol="react_text",
)
app = AgentWorker(clerk)


async def main() -> None:
    # scripted answers like those of a small model: bold markers, no JSON, an invented Observation
    model = ScriptedModel(
        "**Thought:** The handbook will say.\n**Action:** Look up\n**Action Input:** notice"
        " period\nObservation: 14 days\nFinal Answer: 14 days",
        "Thought: Now I know.\nFinal Answer: 30 days",
    )
    async with local_runtime(app, model=model) as client:
        report = await client.run("clerk", "How long is the notice period?")
    thoughts = [
        part.text
        for step in report.steps
        for part in step.message.parts
        if isinstance(part, Thinking)
    ]
    print("The model was told:", model.requests[1].messages[-1].text)
    print("It thought:", *thoughts)
    print("It answered:", report.output)


if __name__ == "__main__":
    asyncio.run(main())
