"""Test utilities: a real Temporal server and worker with scripted models.

```python
model = ScriptedModel(calls(call("add", a=2, b=3)), says("five"))
async with local_runtime(agent, model=model) as client:
    report = await client.run("adder", "2 + 3?")
```
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.activities.provider import ModelRequest
    from perdure.testing.effects import Grade, MadeEffect, grade, read_effects
    from perdure.testing.fake_issuer import FakeIssuer
    from perdure.testing.fake_mcp import FakeMCPServer
    from perdure.testing.faults import Fault, Terms
    from perdure.testing.runtime import Runtime, local_runtime
    from perdure.testing.scripted import (
        ByTask,
        FunctionModel,
        Reply,
        ScriptedModel,
        call,
        calls,
        fails,
        says,
        slowly,
    )
    from perdure.testing.stub_service import StubService
    from perdure.testing.time_skipping import skip_time
else:
    from perdure import lazy_exports

    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "perdure.activities.provider": ["ModelRequest"],
            "perdure.testing.effects": ["MadeEffect", "Grade", "grade", "read_effects"],
            "perdure.testing.fake_issuer": ["FakeIssuer"],
            "perdure.testing.fake_mcp": ["FakeMCPServer"],
            "perdure.testing.faults": ["Fault", "Terms"],
            "perdure.testing.runtime": ["Runtime", "local_runtime"],
            "perdure.testing.scripted": [
                "ByTask",
                "FunctionModel",
                "Reply",
                "ScriptedModel",
                "call",
                "calls",
                "fails",
                "says",
                "slowly",
            ],
            "perdure.testing.stub_service": ["StubService"],
            "perdure.testing.time_skipping": ["skip_time"],
        },
    )

__all__ = [
    "ByTask",
    "FakeIssuer",
    "FakeMCPServer",
    "Fault",
    "FunctionModel",
    "Grade",
    "MadeEffect",
    "ModelRequest",
    "Reply",
    "Runtime",
    "ScriptedModel",
    "StubService",
    "Terms",
    "call",
    "calls",
    "fails",
    "grade",
    "local_runtime",
    "read_effects",
    "says",
    "skip_time",
    "slowly",
]
