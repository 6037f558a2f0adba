"""Skills as values: their effect on a prompt, a toolset and a definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, Skill, Toolbox, errors, tool
from perdure.activities.load_skill import PinnedSkills
from perdure.agents.definitions import AgentDefinition, PinnedSkill, Target, define
from perdure.agents.skills import LOAD_SKILL, joined
from perdure.agents.tools import Tool


@tool
def weigh(item: str) -> int:
    """Weigh an item."""
    return len(item)


@tool(name="weigh")
def other_weigh(item: str) -> int:
    """Weigh an item otherwise."""
    return 0


def agent_with(*skills: Skill | Path, **fields: Any) -> Agent:
    return Agent(
        **{
            "name": "clerk",
            "model": "x:y",
            "instructions": "You are a clerk.",
            "skills": skills,
            **fields,
        }
    )


def defined(agent: Agent, allowed: list[str] | None = None) -> AgentDefinition:
    return define(
        agent, chain=[Target(model="x:y")], activity_of=lambda item: item.name, allowed=allowed
    )


@pytest.mark.accepts("S1")
def test_instructions_stand_in_the_order_of_the_skills() -> None:
    """Separated by one blank line, however the texts end; without skills the prompt is
    unchanged.
    """
    a, b = Skill("a", "\nDo A.\n"), Skill("b", "Do B.")

    assert defined(agent_with(a, b)).instructions == "You are a clerk.\n\nDo A.\n\nDo B."
    assert (
        defined(agent_with(b, a, instructions="Base.\n\n")).instructions
        == "Base.\n\nDo B.\n\nDo A."
    )
    assert (
        defined(agent_with(a, Skill("tools only", ""), b, instructions="")).instructions
        == "Do A.\n\nDo B."
    )
    assert defined(agent_with(instructions="Base.\n")).instructions == "Base.\n"


def test_skills_on_demand_are_named_at_their_place() -> None:
    """Neighbours share a paragraph; a description is put on one line."""
    prompt = joined(
        "Base.",
        [
            Skill("a", "Do A."),
            Skill("b", "secret b", "How\n  to b", on_demand=True),
            Skill("c", "secret c", on_demand=True),
            Skill("d", "Do D."),
        ],
        can_load=True,
    )

    assert (
        prompt
        == "Base.\n\nDo A.\n\nRead a skill with load_skill before you do what it is about:\n- b:"
        " How to b\n- c\n\nDo D."
    )


def test_skill_on_demand_that_the_turn_may_not_load_is_not_named() -> None:
    """A prompt that suggests a forbidden call would end the turn."""
    definition = defined(
        agent_with(Skill("a", "Do A."), Skill("b", "B", "About b", on_demand=True), tools=[weigh]),
        allowed=["weigh"],
    )

    assert definition.instructions == "You are a clerk.\n\nDo A."
    assert [item.name for item in definition.tools] == ["weigh"]


@pytest.mark.accepts("T10")
def test_tools_of_skills_come_after_those_of_toolboxes_and_load_skill_last() -> None:
    """In the order of the skills."""

    def named(name: str) -> Tool:
        return weigh.renamed(name)

    agent = agent_with(
        Skill("a", "A", tools=[named("a1"), named("a2")]),
        Skill("b", "B", tools=[named("b1")], on_demand=True),
        tools=[named("own")],
        toolboxes=[Toolbox("box", [named("boxed")])],
    )

    assert [item.name for item in defined(agent).tools] == [
        "own",
        "boxed",
        "a1",
        "a2",
        "b1",
        "load_skill",
    ]


def test_load_skill_is_read_only_and_offered_only_with_skills_on_demand(tmp_path: Path) -> None:
    """A folder may add some later, so a worker registers the tool at its start."""
    assert list(agent_with(Skill("a", "A")).toolset()) == []
    assert list(agent_with(tmp_path).toolset()) == ["load_skill"]
    [item] = agent_with(Skill("a", "A", on_demand=True)).toolset().values()
    assert (item.name, item.read_only, item.is_async) == (LOAD_SKILL, True, True)


def test_schema_of_load_skill_does_not_depend_on_the_skills() -> None:
    """A skill added to the deployed agent does not affect a turn that started before."""
    [few], [more] = (
        defined(agent_with(*(Skill(name, name, on_demand=True) for name in names))).tools
        for names in (["a"], ["a", "b"])
    )

    assert few == more


@pytest.mark.accepts("T4")
@pytest.mark.parametrize(
    ("fields", "name", "sources"),
    [
        (
            {"tools": [weigh], "skills": [Skill("a", "A", tools=[other_weigh])]},
            "weigh",
            ["the agent's tools", "skill 'a'"],
        ),
        (
            {
                "toolboxes": [Toolbox("box", [weigh])],
                "skills": [Skill("a", "A", tools=[other_weigh])],
            },
            "weigh",
            ["toolbox 'box'", "skill 'a'"],
        ),
        (
            {"skills": [Skill("a", "A", tools=[weigh]), Skill("b", "B", tools=[weigh])]},
            "weigh",
            ["skill 'a'", "skill 'b'"],
        ),
        (
            {"tools": [weigh.renamed(LOAD_SKILL)]},
            LOAD_SKILL,
            ["Perdure itself", "the agent's tools"],
        ),
        (
            {"skills": [Skill("a", "A", tools=[weigh.renamed(LOAD_SKILL)], on_demand=True)]},
            LOAD_SKILL,
            ["Perdure itself", "skill 'a'"],
        ),
    ],
    ids=["agent and skill", "toolbox and skill", "two skills", "reserved", "reserved, in a skill"],
)
def test_duplicate_names_both_sources_and_the_fix(
    fields: dict[str, Any], name: str, sources: list[str]
) -> None:
    """The message is sufficient to correct the mistake."""
    with pytest.raises(errors.DuplicateToolError) as caught:
        defined(Agent(name="clerk", model="x:y", **fields))

    assert caught.value.context == {"agent": "clerk", "tool": name, "sources": sources}
    assert caught.value.message.startswith(
        f"agent clerk: the tool {name!r} comes from {sources[0]} and from {sources[1]}; rename one"
        " with @tool(name=…)"
    )


def test_resolver_is_not_asked_for_load_skill() -> None:
    """The name is reserved, even if the agent has no skill on demand."""

    class Resolver:
        def resolve(self, name: str) -> Tool | None:
            return weigh.renamed(name)

    assert [
        item.name
        for item in defined(agent_with(resolver=Resolver()), allowed=[LOAD_SKILL, "lift"]).tools
    ] == ["lift"]


def test_with_skills_makes_a_new_agent() -> None:
    """The original is unchanged."""
    a, b = Skill("a", "A"), Skill("b", "B")
    agent = agent_with(a)

    assert (agent.with_skills(b).skills, agent.skills) == ((a, b), (a,))


def test_definition_pins_each_skill_by_digest() -> None:
    """Including those in the prompt, so that history has the text of a turn."""
    a, b = Skill("a", "A"), Skill("b", "B", on_demand=True)

    assert defined(agent_with(a, b)).skills == (
        PinnedSkill(name="a", digest=a.digest),
        PinnedSkill(name="b", digest=b.digest, on_demand=True),
    )


def test_digest_changes_with_what_can_be_read_and_with_nothing_else() -> None:
    """Name, instructions and files, not their order; a description is pinned with the prompt, and
    tools are code.
    """
    skill = Skill("a", "A", "d", on_demand=True, files={"x": "1", "y": "2"})
    same = Skill("a", "A", "other", [weigh], on_demand=True, files={"./y": "2", "x": "1"})
    others = [
        Skill("b", "A", on_demand=True, files={"x": "1", "y": "2"}),
        Skill("a", "B", on_demand=True, files={"x": "1", "y": "2"}),
        Skill("a", "A", on_demand=True, files={"x": "1", "y": "3"}),
        Skill("a", "A", on_demand=True, files={"x": "1"}),
        Skill("a", "A", on_demand=True, files={"x": "12", "y": ""}),
    ]

    assert same.digest == skill.digest
    assert len({skill.digest, *(other.digest for other in others)}) == 6


@pytest.mark.parametrize("name", ["", " a", "a\n", "a\u0000", "\ud800", "x" * 65])
def test_name_that_cannot_be_shown_is_refused(name: str) -> None:
    """A model has to repeat it."""
    with pytest.raises(errors.ConfigurationError, match="use 1 to 64 printable characters"):
        Skill(name, "text")


def test_files_that_nobody_could_read_are_refused() -> None:
    """Only `load_skill` reads files, and it reads skills on demand."""
    with pytest.raises(errors.ConfigurationError, match="pass on_demand=True"):
        Skill("a", "A", files={"x": "1"})


def test_two_skills_of_one_name_are_refused_when_the_agent_is_built(tmp_path: Path) -> None:
    """And so is a value that is neither a skill nor a path, such as the name of a folder."""
    with pytest.raises(
        errors.ConfigurationError,
        match=r"the skill 'a' comes from skills\[0\] and from skills\[2\]; rename one",
    ):
        agent_with(Skill("a", "A"), Skill("b", "B"), Skill("a", "A"))
    with pytest.raises(
        errors.ConfigurationError,
        match=r"skills\[0\] must be a Skill, or the Path of a folder, not 'skills/a'",
    ):
        agent_with("skills/a")  # type: ignore[arg-type]  # that is the mistake


def test_kept_texts_stay_within_their_bound() -> None:
    """The least recently used are dropped first; one larger than the bound is kept alone."""
    kept = PinnedSkills(max_bytes=2_000)
    skills = [Skill(str(n), "x" * 900, on_demand=True) for n in range(3)]

    for n, skill in enumerate([skills[0], skills[1], skills[0], skills[2]]):
        kept.pin(f"run-{n}", defined(agent_with(skill)), [skill])

    assert [kept._text(skill.digest) is not None for skill in skills] == [True, False, True]
    large = Skill("large", "x" * 5_000, on_demand=True)
    kept.pin("run-5", defined(agent_with(large)), [large])
    assert [kept._text(skill.digest) for skill in [*skills, large]] == [None, None, None, large]
