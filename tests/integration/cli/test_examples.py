"""The programs in `examples/` run unchanged, without a key.

Those for skills, typed output and ReAct are run in the test files of these features.
"""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"

PRINTS = {
    "approvals": (
        """\
waits: refund {'ticket': '2', 'euros': 300}
results:
  20 euros for 1
  150 euros for 2
[A person changed the arguments of this call before it ran, to {"ticket":"2","euros":150}]
  This call was not run: it was denied: no refund is above 1000 euros
the model of support called 'delete_customer', which this turn does not allow \
(allowed: refund); none of its calls was run
"""
    ),
    "composition": (
        """\
offered: oslo_stock oslo_order rome_stock
offered: oslo_stock rome_stock weather
results:
  3 of tea in Rome
  sunny in Rome
"""
    ),
    "documents": (
        """\
completed: 18 steps, 17 tool calls
notes: [(8, 'REPORT 1.', 8)]
"""
    ),
    "guardrails": (
        """\
begins: How long is the notice period?
step 1: ['look_up']
step 2: []
answers: 30 days
begins: And Ada's?
step 1: []
answers: 30 days, as Ada knows.
refused: a guardrail refused the answer: the answer names a customer
refused: a guardrail refused the task: ask in fewer than 100 letters
"""
    ),
    "helpdesk": (
        """\
waiting after 2 steps: refund {"order": 17, "euros": 40}
completed with 4 tool calls: {"reply": "We have paid you back.", "refund_euros": 40}
reply='We have paid you back.' refund_euros=40
paid: [(17, 40)]
closed: [(4711, 'We have paid you back.')]
"""
    ),
    "json_protocol": (
        """\
A reply holds one of:
  name and arguments
  answer
The model was told: Result of add:
15
The transcript is that of any protocol: \
['UserMessage', 'AssistantMessage', 'ToolMessage', 'AssistantMessage']
15
"""
    ),
    "orchestrator": (
        """\
Either side may give 30 days' notice.
page-7/researcher-1: completed, model calls: 2
page-7/researcher-2: completed, model calls: 2
page-7/writer-3: completed, model calls: 1
"""
    ),
    "parallel_tools": (
        """\
{"shop": "south"} → 30 euros
{"shop": "north"} → price failed: ConnectionError: the shop does not answer
{"shop": "west"} → 28 euros
In the west, for 28 euros.
"""
    ),
    "trusted_tools": (
        """\
approved: write_file {"path": "bills/ada.md", "text": "12 packets, 46.80 euros\\n"}
approved: run_program {"program": "wc", "arguments": ["-l", "orders.md"]}
approved: run_program {"program": "sh", "arguments": ["-c", "env"]}
True True {"value":"46.8","exact":true} True
{"path":"bills/ada.md","bytes":24,"replaced":false}
3 orders.md

[exit code 0]
read_file failed: ValueError: '../../etc/passwd' leads out of the folder: \
use a path relative to it, without ..
fetch failed: ValueError: '169.254.169.254' is not on the public internet, \
or not only there; it is not read
calculate failed: ValueError: "__import__('os').getcwd" cannot be called like this; there are \
abs, round, floor, ceil, sqrt, exp, ln, log10, min, max
run_program failed: ValueError: 'sh' is not allowed here; there are wc
12 packets, 46.80 euros
"""
    ),
}
ARGUMENTS = {"documents": ["8"]}
"""Of 200 documents, a few show the same."""
ELSEWHERE = {"react", "skills", "support", "typed_output"}
"""`support` is the README's own program."""


@pytest.mark.accepts("E20")
@pytest.mark.parametrize("name", PRINTS)
@pytest.mark.table(1)
def test_example_runs(name: str) -> None:
    """Its output demonstrates its feature."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *ARGUMENTS.get(name, [])],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert (done.returncode, done.stdout) == (0, PRINTS[name]), done.stderr


def test_every_example_is_run_by_a_test() -> None:
    """A new example has to be listed here, or run in the test file of its feature."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PRINTS, *ELSEWHERE}
