"""Rows of the table of bad inputs: calls of models, and results of tools, MCP servers and skill
folders.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from perdure import AgentReport, Budget, MCPServer, RequestOptions, ToolCall, errors, tool
from perdure.agents.mcp_servers import name_of
from perdure.testing import ScriptedModel, call, calls, says
from perdure.toolboxes import files

from ..mcp.notes import notes
from ..skill_folders import write_skill
from ..tooling import add
from .bench import Answers, BadInput, Bench, End, Fails, Outcome, Refused, Told, all_of, end_of
from .odd_results import RAISED, REFUSED, fetch
from .odd_values import BIG
from .weigher import weigh

DONE = "done"


def of_model(
    number: int, words: str, outcome: Outcome, *replies: Sequence[Any], **fields: Any
) -> BadInput:
    """A model that gives one of these replies, and then an answer."""
    return BadInput(
        number,
        "model",
        words,
        outcome,
        lambda bench: all_of(*(bench.asked(*script, **fields) for script in replies)),
    )


def of_tool(number: int, words: str, outcome: Outcome, made: Any, *asked: ToolCall) -> BadInput:
    """A tool that returns something odd for this call, each time in a new turn."""
    return BadInput(
        number,
        "tool",
        words,
        outcome,
        lambda bench: all_of(*(bench.asked(calls(one), tools=[made]) for one in asked)),
    )


def of_server(
    number: int, words: str, outcome: Outcome, *manners: str, asked: str = "echo", text: str = "a"
) -> BadInput:
    """An MCP server that starts in one of these ways, or misbehaves when this tool is called."""

    async def tried(bench: Bench) -> list[End]:
        return await all_of(
            *(one_server(bench, manner, asked, text) for manner in manners or ("",))
        )

    return BadInput(number, "MCP server", words, outcome, tried)


async def one_server(bench: Bench, manner: str, asked: str, text: str) -> End:
    """The end of a turn with this server.

    The start timeout is long enough for a busy machine, and short for a server that never starts.
    """
    patience = timedelta(seconds=1.5) if manner in ("silent", "garbage") else timedelta(seconds=20)
    server = notes(bench.folder(), manner, env=["NOTES_KEY"], start_timeout=patience)
    return await bench.asked(calls(call(name_of("notes", asked), text=text)), toolboxes=[server])


def of_tasks(number: int, words: str, outcome: Outcome, *tasks: dict[str, Any]) -> BadInput:
    """An MCP server that says this of its tasks."""

    async def one(bench: Bench, task: dict[str, Any]) -> End:
        from ..mcp.task_server import task_server

        async with task_server() as works:
            works.new = task
            return await bench.asked(calls(call("works__build", what="a")), toolboxes=[works.box()])

    return BadInput(
        number,
        "MCP server",
        words,
        outcome,
        lambda bench: all_of(*(one(bench, task) for task in tasks)),
    )


def of_folder(number: int, words: str, outcome: Outcome, *bodies: bytes) -> BadInput:
    """A folder whose SKILL.md has these bytes."""

    async def one(bench: Bench, body: bytes) -> End:
        folder = bench.folder()
        (folder / "SKILL.md").write_bytes(body)
        return await bench.asked(skills=[folder])

    return BadInput(
        number,
        "skill folder",
        words,
        outcome,
        lambda bench: all_of(*(one(bench, body) for body in bodies)),
    )


async def many_calls(bench: Bench) -> list[End]:
    """More calls in one answer than the limit."""
    return [
        await bench.asked(calls(*[call("weigh")] * count), tools=[weigh])
        for count in (65, 1000, 20_000)
    ]


async def large_tree(bench: Bench) -> list[End]:
    """One turn more than the limit of a tree, by one call that wants several."""
    leaf = bench.agent(ScriptedModel(), description="Works.")
    spawn = call("spawn_agents", tasks=[{"agent": leaf, "task": "go"}] * 4)
    return [await bench.asked(calls(spawn), delegates=[leaf], max_descendants=3)]


async def odd_handoff(bench: Bench) -> list[End]:
    """Calls that hand nothing over."""
    leaf = bench.agent(ScriptedModel(), description="Works.")
    odd = ["{", "[]", '{"agent": "x", "message": "go"}', f'{{"agent": "{leaf}", "message": 5}}']
    asked = [ToolCall(id="", name="hand_over", arguments=one) for one in odd]
    return await all_of(*(bench.asked(calls(one), handoffs=[leaf]) for one in asked))


async def odd_pattern(bench: Bench) -> list[End]:
    """Brackets that are never closed."""
    return [
        await bench.asked(
            calls(call("list_files", pattern="[" * 20_000)), toolboxes=[files(bench.folder())]
        )
    ]


async def odd_description(bench: Bench) -> list[End]:
    """A description with escape sequences, which the model does not get."""
    folder = bench.folder()
    (folder / "description").write_text("Reads\x1b[2J notes.\u202e\U000e0041")
    model = ScriptedModel(calls(call("notes__echo", text="a")), says(DONE))
    end = await bench.turn(model, toolboxes=[notes(folder, env=["NOTES_KEY"])])
    assert {described.description for described in model.requests[0].tools} == {"Reads[2J notes."}
    return [end]


async def path_out(bench: Bench) -> list[End]:
    """A model asks for a file outside of the skill's folder."""
    folder = write_skill(
        bench.folder() / "letters", "Begin with a greeting.", description="Letters", form="Dear"
    )
    paths = ("../../secret.md", "/etc/passwd", "form.md\0", "forms/../../x")
    asked = calls(*(call("load_skill", name="letters", path=path) for path in paths))
    return [await bench.asked(asked, skills=[folder])]


async def odd_values(bench: Bench) -> list[End]:
    """Invalid values of Perdure's own types."""
    wrong: list[Callable[[], object]] = [
        lambda: Budget(usd="x"),
        lambda: RequestOptions(max_output_tokens=0),
        lambda: MCPServer.http("s", 5),  # type: ignore[arg-type]  # that is the mistake
    ]
    return await all_of(*(end_of(made(one)) for one in wrong))


async def made(value: Callable[[], object]) -> object:
    """Build a value where its error is caught."""
    return value()


@tool
def leave(how: str) -> str:
    """Do not come back."""
    if how == "exit":
        sys.exit(3)
    raise KeyboardInterrupt if how == "interrupt" else BaseExceptionGroup("all", [GeneratorExit()])


def has_plain_ids(report: AgentReport) -> bool:
    """Every call has an id that can be printed."""
    asked = [call.id for step in report.steps for call in step.message.calls]
    return bool(asked) and all(
        one.isascii() and one.isprintable() and len(one) < 100 for one in asked
    )


def was_run(report: AgentReport) -> bool:
    """The result of the first call is not an error, and says that the tool ran."""
    result = report.steps[0].results[0]
    return not result.is_error and "[The tool ran." in result.content


def is_done(report: AgentReport) -> bool:
    """The turn continued to the model's last answer."""
    return bool(report.output == DONE)


ALIASES = (
    b"---\nl0: &l0 [x, x, x, x, x, x, x, x, x, x]\n"
    + b"".join(
        b"l%d: &l%d [%b]\n" % (n, n, b", ".join([b"*l%d" % (n - 1)] * 10)) for n in range(1, 10)
    )
    + b"name: *l9\n---\nBody"
)
MERGES = (
    b"---\nm0: &m0 {a: b}\n"
    + b"".join(
        b"m%d: &m%d {<<: [%b]}\n" % (n, n, b", ".join([b"*m%d" % (n - 1)] * 10))
        for n in range(1, 9)
    )
    + b"---\nBody"
)
ESCAPES = "\x1b[2J\x1b[H"
OPEN_FENCE = "Action: look\nAction Input: ```\n" + " " * 100_000 + "x"

MODELS = [
    BadInput(
        44,
        "model",
        "65, 1,000 or 20,000 calls in one answer",
        Fails(errors.LLMInvalidRequestError),
        many_calls,
    ),
    of_model(
        45,
        "an answer of 3 MB: text, thought, arguments or name of a tool",
        Fails(errors.TooLargeError),
        [says("x" * BIG)],
        [says("ok", thinking="x" * BIG)],
        [calls(call("look", word="x" * BIG))],
        [calls(ToolCall(id="a", name="x" * BIG))],
    ),
    of_model(
        46,
        "arguments that are not JSON, not an object, or do not match the schema",
        Told("its arguments are not valid"),
        *(
            [calls(ToolCall(id="a", name="add", arguments=odd))]
            for odd in ("", "{", "[1]", '{"a": 1}', '{"a": 1, "b": "x"}')
        ),
        tools=[add],
    ),
    of_model(
        47,
        "a call id with terminal escapes, or of 3 KB",
        Answers("the call gets another id", has_plain_ids),
        *([calls(ToolCall(id=odd, name="weigh"))] for odd in (f"{ESCAPES}refund-1", "x" * 3000)),
        tools=[weigh],
    ),
    of_model(
        48,
        "`react_text`: 100,000 spaces in an open fence, or 20,000 actions",
        Answers("the model is asked again", is_done),
        *([says(odd), says(f"Final Answer: {DONE}")] for odd in (OPEN_FENCE, "Action:\n" * 20_000)),
        tools=[weigh],
        protocol="react_text",
    ),
    of_model(
        49,
        "three answers in a row that do not have the output type",
        Fails(errors.OutputInvalidError),
        ["one", "two", "three"],
        [says("[" * 20_000)] * 3,
        output=list[int],
    ),
    BadInput(
        50,
        "model",
        "a tree with more turns than `max_descendants`",
        Told("the tree of agents is limited"),
        large_tree,
    ),
    BadInput(
        72,
        "model",
        "a pattern of 20,000 brackets for `list_files`",
        Told("list_files failed: ValueError"),
        odd_pattern,
    ),
    BadInput(
        76,
        "model",
        "a call of `hand_over` with another agent than the declared ones, without a message, or"
        " with invalid JSON",
        Told("hand_over: not handed over: "),
        odd_handoff,
    ),
]

PARTS = [
    of_tool(
        51,
        "an exception without a message, or with lone surrogates or a number of 5,000 digits",
        Told("fetch failed:"),
        fetch,
        *(call("fetch", what=what) for what in RAISED),
    ),
    of_tool(
        52,
        "a result that cannot be encoded as JSON",
        Answers("the model reads `str(result)`, and that the tool ran", was_run),
        fetch,
        *(call("fetch", what=what) for what in REFUSED),
    ),
    of_tool(
        53,
        "`SystemExit`, `KeyboardInterrupt` or another `BaseException`",
        Told("leave failed:"),
        leave,
        *(call("leave", how=how) for how in ("exit", "interrupt", "group")),
    ),
    of_server(
        54,
        "a server that exits at once, says nothing, or does not write JSON-RPC",
        Fails(errors.ConfigurationError),
        "exit",
        "silent",
        "garbage",
    ),
    of_tasks(
        77,
        "a task with a status that is none, without a result, or with a question for its user",
        Told("whether it took effect is unknown"),
        {"status": "lost"},
        {"status": "completed"},
        {"status": "completed", "result": {"content": 5}},
        {"status": "input_required"},
    ),
    of_server(
        55,
        "a server that exits during a call",
        Told("it ended during the call"),
        asked="die",
    ),
    of_server(
        56,
        "a server that floods its standard output during a call",
        Told("not JSON-RPC to its standard output"),
        asked="flood",
    ),
    of_server(
        57,
        "an error that quotes the key of the server",
        Told("the token [NOTES_KEY] is not accepted"),
        asked="refuse",
        text="-32603 the token KEY is not accepted",
    ),
    BadInput(
        58,
        "MCP server",
        "a tool description with terminal escapes and invisible characters",
        Answers("the model is not shown them", is_done),
        odd_description,
    ),
    of_folder(
        59,
        "YAML aliases and merge keys that expand to billions of values",
        Fails(errors.ConfigurationError),
        ALIASES,
        MERGES,
    ),
    of_folder(
        60,
        "a SKILL.md that is not UTF-8, is binary or over 1 MB, or has invalid frontmatter",
        Fails(errors.ConfigurationError),
        *(
            b"\xff\xfe",
            b"\0",
            b"x" * 1_000_001,
            b"---\nname: [\n---\nBody",
            b"---\nx: " + b"[" * 5000 + b"\n---\nBody",
        ),
    ),
    BadInput(
        61,
        "skill folder",
        "a request for a file outside the folder",
        Told("the skill 'letters' has no file"),
        path_out,
    ),
    BadInput(
        63,
        "caller",
        "an invalid value for a budget, an option or an MCP server",
        Refused(errors.ConfigurationError),
        odd_values,
    ),
]
