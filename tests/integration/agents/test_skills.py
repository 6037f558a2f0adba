"""Skills in turns: in the prompt, on demand, and pinned for a running turn, also in another
process.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, AgentReport, Outcome, Registry, Skill, Toolbox, errors, tool
from perdure.temporal.connect import connect
from perdure.testing import ScriptedModel, call, calls, says
from perdure.testing.scripted import Reply
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

from ...conftest import RecordingClient, Runtime, eventually
from ...support.skill_folders import write_skill
from ...support.tooling import add

ROOT = Path(__file__).parents[3]


def loads(*names: str) -> Reply:
    return calls(*(call("load_skill", name=name) for name in names))


def results_of(report: AgentReport) -> list[tuple[str, bool]]:
    """Content and `is_error` of every result, in order."""
    return [(result.content, result.is_error) for step in report.steps for result in step.results]


@pytest.mark.accepts("S1", "S2", "S3", "S4", "S6")
async def test_skills_join_the_prompt_and_their_tools_run(runtime: Runtime, tmp_path: Path) -> None:
    """Values and folders, inlined and on demand; a skill that cannot be loaded is an error result,
    and the turn continues.
    """
    (tmp_path / "secret.md").write_text("swordfish")
    write_skill(tmp_path / "folders" / "inlined", "Do it neatly.")
    write_skill(
        tmp_path / "folders" / "letters",
        "Begin with a greeting.",
        description="How we write letters",
        form="Dear",
    )
    (tmp_path / "folders" / "no-skill").mkdir()
    agent = Agent(
        name="clerk",
        model="scripted:x",
        instructions="Base.",
        skills=[Skill("A", "Do A.", tools=[add]), Skill("B", "Do B."), tmp_path / "folders"],
    )
    asked = [call("add", a=2, b=3)]
    asked += [
        call("load_skill", name="letters"),
        call("load_skill", name="letters", path="form.md"),
    ]
    asked += [
        call("load_skill", name="inlined"),
        call("load_skill", name="letters", path="../../secret.md"),
        call("load_skill"),
    ]
    model = ScriptedModel(calls(*asked), says("done"))

    async with runtime(agent, model=model) as client:
        turn = await client.start(agent, "go")
        report = await turn.result()
        history = await client.history(turn)

    prompt = (
        "Base.\n\nDo A.\n\nDo B.\n\nDo it neatly.\n\nRead a skill with load_skill before you do"
        " what it is about:\n- letters: How we write letters"
    )
    assert [request.system for request in model.requests] == [prompt, prompt]
    assert [item.name for item in model.requests[0].tools] == ["add", "load_skill"]
    assert results_of(report) == [
        ("5", False),
        ("Begin with a greeting.\n\n[files of this skill: form.md]", False),
        ("Dear", False),
        (
            (
                "load_skill failed: ValueError: there is no skill 'inlined' to be read; there is"
                " letters"
            ),
            True,
        ),
        (
            (
                "load_skill failed: ValueError: the skill 'letters' has no file '../../secret.md';"
                " it has form.md"
            ),
            True,
        ),
        ("load_skill was not called, its arguments are not valid: name: Field required", True),
    ]
    scheduled = [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
    ]
    assert [name for name in scheduled if name][2:-1] == ["add", *["load_skill"] * 5]


@pytest.mark.slow
@pytest.mark.accepts("S7", "S8")
async def test_folder_that_changes_changes_the_next_turn_and_not_a_running_one(
    runtime: Runtime, tmp_path: Path
) -> None:
    """Inlined and loaded skills and their files, even after all of them are deleted."""
    inlined = write_skill(tmp_path / "inlined", "Old rule.")
    letters = write_skill(
        tmp_path / "letters", "Old body.", description="Old letters", form="Old form"
    )

    @tool
    def change() -> None:
        """Change the skills."""
        write_skill(inlined, "New rule.")
        write_skill(letters, "New body.", description="New letters", form="New form", more="More")

    @tool
    def remove() -> None:
        """Remove the skills."""
        shutil.rmtree(letters)

    agent = Agent(
        name="clerk",
        model="scripted:x",
        instructions="Base.",
        tools=[change, remove],
        skills=[tmp_path],
    )
    reads = calls(
        call("load_skill", name="letters"), call("load_skill", name="letters", path="form.md")
    )
    model = ScriptedModel(
        calls(call("change")),
        reads,
        says("done"),
        calls(call("remove")),
        reads,
        says("done"),
        loads("letters"),
        says("done"),
    )

    async with runtime(agent, model=model) as client:
        reports = [await client.run(agent, "go") for _ in range(3)]

    assert [results_of(report)[1:] for report in reports[:2]] == [
        [("Old body.\n\n[files of this skill: form.md]", False), ("Old form", False)],
        [("New body.\n\n[files of this skill: form.md, more.md]", False), ("New form", False)],
    ]
    assert results_of(reports[2]) == [
        ("There is no tool named 'load_skill'. The tools are: change, remove.", True)
    ]
    prompts = [
        request.system.replace("Read a skill with load_skill before you do what it is about:\n", "")
        for request in model.requests
    ]
    assert prompts == [
        *["Base.\n\nOld rule.\n\n- letters: Old letters"] * 3,
        *["Base.\n\nNew rule.\n\n- letters: New letters"] * 3,
        *["Base.\n\nNew rule."] * 2,
    ]


@pytest.mark.slow
@pytest.mark.accepts("S7")
async def test_another_process_reads_only_what_the_turn_was_pinned_to(
    perdure_server: str, tmp_path: Path
) -> None:
    """The worker that takes over reads the pins from history; it reads unchanged files and refuses
    changed ones.
    """
    write_skill(tmp_path / "same", "As it was.", description="Same")
    changed = write_skill(tmp_path / "changed", "Old.", description="Changed", form="Old form")
    gone = write_skill(tmp_path / "gone", "Gone.", description="Gone")
    client = await connect(perdure_server)
    settings = WorkerSettings(task_queue="test-pinned-skills", grace=timedelta(milliseconds=100))
    agent = Agent(name="clerk", model="scripted:x", skills=[tmp_path])
    old = ScriptedModel(says("never", delay=timedelta(hours=1)))
    new = ScriptedModel(
        loads("same", "changed", "gone", "added"),
        says("done"),
        loads("changed", "added"),
        says("done"),
    )
    recording = RecordingClient(client, "test-pinned-skills")

    async with AgentWorker(agent, providers={"scripted": old}).running(client, settings=settings):
        turn = await recording.start(agent, "go")
        await eventually(lambda: old.call_count == 1, "the model thinks")
    write_skill(changed, "Old.", form="New form", description="Changed")
    shutil.rmtree(gone)
    write_skill(tmp_path / "added", "Added.", description="Added")
    async with AgentWorker(agent, providers={"scripted": new}).running(client, settings=settings):
        report = await turn.result()
        following = await recording.run(agent, "go")

    refused = (
        "load_skill failed: ValueError: the skill {!r} was changed or removed since this turn"
        " began; it was not read"
    )
    assert results_of(report) == [
        ("As it was.", False),
        (refused.format("changed"), True),
        (refused.format("gone"), True),
        (
            (
                "load_skill failed: ValueError: there is no skill 'added' to be read; there is"
                " changed, gone, same"
            ),
            True,
        ),
    ]
    assert results_of(following) == [
        ("Old.\n\n[files of this skill: form.md]", False),
        ("Added.", False),
    ]


@pytest.mark.slow
@pytest.mark.accepts("T4", "S5")
async def test_agent_whose_skills_do_not_fit_fails_the_turn_before_the_model_is_asked(
    runtime: Runtime, tmp_path: Path
) -> None:
    """The error names the tool and both sources, or the invalid file, even for agents registered
    after the worker has started.
    """
    write_skill(tmp_path / "bad", "---\nname: [\n---\nBody")
    write_skill(tmp_path / "twice" / "A", "Do A.")
    cases: dict[str, tuple[dict[str, Any], type[errors.PerdureError], str]] = {
        "both": (
            {"toolboxes": [Toolbox("maths", [add])], "skills": [Skill("A", "Do A.", tools=[add])]},
            errors.DuplicateToolError,
            "agent both: the tool 'add' comes from toolbox 'maths' and from skill 'A'; rename one",
        ),
        "reserved": (
            {"tools": [add.renamed("load_skill")]},
            errors.DuplicateToolError,
            (
                "agent reserved: the tool 'load_skill' comes from Perdure itself and from the"
                " agent's tools; rename one"
            ),
        ),
        "bad": (
            {"skills": [tmp_path / "bad"]},
            errors.ConfigurationError,
            f"{tmp_path}/bad/SKILL.md: the frontmatter is not valid YAML",
        ),
        "missing": (
            {"skills": [tmp_path / "missing"]},
            errors.ConfigurationError,
            f"the folder of skills {tmp_path}/missing cannot be read",
        ),
        "twice": (
            {"skills": [Skill("A", "Do A."), tmp_path / "twice"]},
            errors.ConfigurationError,
            (
                f"agent twice: the skill 'A' comes from skills[0] and from {tmp_path}/twice/A;"
                " rename one"
            ),
        ),
    }
    model = ScriptedModel()
    registry = Registry()
    caught = {}

    async with runtime(AgentWorker(registry, providers={"scripted": model})) as client:
        for name, (fields, kind, _) in cases.items():
            registry.add(Agent(name=name, model="scripted:x", **fields))
            with pytest.raises(kind) as raised:
                await client.run(name, "go")
            caught[name] = raised.value

    assert {
        name: error.message.startswith(cases[name][2]) for name, error in caught.items()
    } == dict.fromkeys(cases, True), caught
    assert {error.report.outcome if error.report else None for error in caught.values()} == {
        Outcome.FAILED
    }
    assert model.call_count == 0


@pytest.mark.accepts("T5", "S7")
async def test_agent_that_grew_offers_more_to_the_next_turn_and_not_to_a_running_one(
    runtime: Runtime,
) -> None:
    """A skill with a tool, a toolbox, a skill on demand; and the skill that the running turn loads
    has changed by then.
    """
    rules = Skill("rules", "Old rules.", "Rules", on_demand=True)
    agent = Agent(name="clerk", model="scripted:x", instructions="Base.", skills=[rules])
    registry = Registry()

    @tool
    def grow() -> None:
        """Let the agent grow."""
        grown = replace(agent, skills=[replace(rules, instructions="New rules.")])
        grown = grown.with_toolboxes(Toolbox("box", [add.renamed("sum")])).with_skills(
            Skill("sums", "Sum up.", tools=[add])
        )
        registry.add(grown, replace=True)

    agent = replace(agent, tools=[grow])
    registry.add(agent)
    script = [
        calls(call("grow")),
        calls(call("load_skill", name="rules"), call("add", a=2, b=3), call("sum", a=2, b=3)),
        says("done"),
    ]

    async with runtime(
        AgentWorker(
            registry, providers={"scripted": (model := ScriptedModel(*script, *script[1:]))}
        )
    ) as client:
        running, following = await client.run(agent, "go"), await client.run(agent, "go")

    offered = ["grow", "load_skill"], ["grow", "sum", "add", "load_skill"]
    assert [[item.name for item in request.tools] for request in model.requests] == [
        *[offered[0]] * 3,
        *[offered[1]] * 2,
    ]
    assert results_of(running)[1:] == [
        ("Old rules.", False),
        *(
            (f"There is no tool named {name!r}. The tools are: grow, load_skill.", True)
            for name in ("add", "sum")
        ),
    ]
    assert results_of(following) == [("New rules.", False), ("5", False), ("5", False)]
    assert model.requests[-1].system.startswith("Base.\n\nRead a skill")
    assert model.requests[-1].system.endswith("\n- rules: Rules\n\nSum up.")


@pytest.mark.slow
async def test_load_skill_is_a_tool_that_a_turn_may_forbid(runtime: Runtime) -> None:
    """Then the prompt does not mention skills on demand, and a call ends the turn."""
    agent = Agent(
        name="clerk",
        model="scripted:x",
        instructions="Base.",
        tools=[add],
        skills=[Skill("A", "Do A.", "About A", on_demand=True)],
    )
    model = ScriptedModel(loads("A"), loads("A"), says("done"))

    async with runtime(agent, model=model) as client:
        with pytest.raises(errors.AutonomyBoundaryError):
            await client.run(agent, "go", allowed_tools=["add"])
        report = await client.run(agent, "go", allowed_tools=["load_skill"])

    assert (model.requests[0].system, [item.name for item in model.requests[0].tools]) == (
        "Base.",
        ["add"],
    )
    assert [item.name for item in model.requests[1].tools] == ["load_skill"]
    assert results_of(report) == [("Do A.", False)]


@pytest.mark.slow
async def test_example_runs() -> None:
    """`examples/skills.py` prints its prompt, what the model read, and the answer."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(ROOT / "examples/skills.py")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    prompt, letters, form, answer = done.stdout.split("\n\n---\n\n")
    assert (
        prompt
        == "You answer the customers of a shop.\n\nRead a skill with load_skill before you do what"
        " it is about:\n- letters: How letters to customers are written\n\nMoney comes back"
        " within 14 days, never as a voucher.\n\nLook prices up; never guess one."
    )
    assert letters.endswith("`refund.md` for a refund.\n\n[files of this skill: refund.md]")
    assert (form, answer) == (
        "Dear NAME,\n\nyour refund of AMOUNT is on its way.\n",
        "Dear Ada, your refund of 30 euros is on its way.\n",
    )
