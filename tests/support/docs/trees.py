"""The tree of agents that two pages show, with its costs."""

import json

from perdure import ToolCall, Usage
from perdure.testing import ByTask, ScriptedModel, calls, says
from perdure.testing.scripted import Reply

COSTS = Usage(input_tokens=13_600, output_tokens=1_000)
"""$0.0054 at the price of openai:gpt-5-mini."""


def asks(name: str, **arguments: object) -> Reply:
    """A call of a delegation tool."""
    return calls(ToolCall(id="", name=name, arguments=json.dumps(arguments)), usage=COSTS)


def tree() -> ByTask:
    """The tree of the pages: two researchers, and a writer with a reviewer."""
    tasks = [
        ("researcher", "How long is it?"),
        ("researcher", "Who may give it?"),
        ("writer", "Write the page"),
    ]
    answer = says("30 days", usage=COSTS)
    return ByTask(
        {
            "A page on notice periods": ScriptedModel(
                asks("spawn_agents", tasks=[{"agent": a, "task": t} for a, t in tasks]), answer
            ),
            "How long is it?": ScriptedModel(answer),
            "Who may give it?": ScriptedModel(answer),
            "Write the page": ScriptedModel(
                asks("delegate_to_agent", agent="researcher", task="Check it"), answer
            ),
            "Check it": ScriptedModel(answer),
        }
    )
