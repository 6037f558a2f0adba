"""Test utilities: a real Temporal server and worker with scripted models.

```python
model = ScriptedModel(calls(call("add", a=2, b=3)), says("five"))
async with local_runtime(agent, model=model) as client:
    report = await client.run("adder", "2 + 3?")
```
"""

from perdure.activities.provider import ModelRequest
from perdure.testing.fake_mcp import FakeMCPServer
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
from perdure.testing.time_skipping import skip_time

__all__ = [
    "ByTask",
    "FakeMCPServer",
    "FunctionModel",
    "ModelRequest",
    "Reply",
    "Runtime",
    "ScriptedModel",
    "call",
    "calls",
    "fails",
    "local_runtime",
    "says",
    "skip_time",
    "slowly",
]
