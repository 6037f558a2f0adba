"""Folders as skills, on real folders: what is loaded, what is refused, and that no path leads
out.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure import Agent, Skill, errors
from perdure.activities import skill_folders
from perdure.agents.definitions import Target, define
from perdure.agents.skills import among, loader
from perdure.agents.tool_context import encode

ON_DEMAND = "---\nname: letters\ndescription: How we write letters\n---\n\nBegin with a greeting.\n"


def agent_with(*skills: Skill | Path) -> Agent:
    return Agent(name="clerk", model="x:y", instructions="You are a clerk.", skills=skills)


def written(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def read(*paths: Path) -> tuple[Skill, ...]:
    return skill_folders.read(agent_with(*paths))


async def load(skills: tuple[Skill, ...], **arguments: object) -> str:
    """Call `load_skill` as a turn does, with arguments as JSON."""
    item = loader(among(skills))
    result = await item.function(**item.arguments.parse(encode(arguments)))
    assert isinstance(result, str)
    return result


@pytest.mark.accepts("S3")
def test_folder_without_frontmatter_is_inlined_under_its_name(tmp_path: Path) -> None:
    """Its other files are not read, because they could not be requested."""
    folder = written(tmp_path / "x", {"SKILL.md": "# Heading\n\nDo X.\n", "more.md": "more"})

    assert read(folder) == (Skill("x", "# Heading\n\nDo X."),)


@pytest.mark.accepts("S4")
async def test_folder_with_a_description_is_on_demand(tmp_path: Path) -> None:
    """The prompt has name and description; `load_skill` returns the body, its files by path, and
    their list.
    """
    [skill] = skills = read(
        written(
            tmp_path / "x",
            {"SKILL.md": ON_DEMAND, "forms/a.md": "Dear", "forms/b.txt": "Yours", "logo.md": "L"},
        )
    )

    assert skill == Skill(
        "letters",
        "Begin with a greeting.",
        "How we write letters",
        on_demand=True,
        files={"forms/a.md": "Dear", "forms/b.txt": "Yours", "logo.md": "L"},
    )
    assert define(
        agent_with(skill), chain=[Target(model="x:y")], activity_of=str
    ).instructions.endswith("\n- letters: How we write letters")
    assert (
        await load(skills, name="letters")
        == "Begin with a greeting.\n\n[files of this skill: forms/a.md, forms/b.txt, logo.md]"
    )
    assert (
        await load(skills, name="letters", path=None)
        == await load(skills, name="letters", path="SKILL.md")
        == await load(skills, name="letters", path="")
    )
    assert (
        await load(skills, name="letters", path="forms/a.md")
        == await load(skills, name="letters", path="./forms//a.md")
        == "Dear"
    )
    assert await load(skills, name="letters", path="forms/") == "forms/a.md\nforms/b.txt"
    assert await load(skills, name="letters", path=".") == "forms/a.md\nforms/b.txt\nlogo.md"


@pytest.mark.accepts("S4")
async def test_body_without_files_is_the_body_alone(tmp_path: Path) -> None:
    """Byte for byte."""
    assert (
        await load(read(written(tmp_path / "x", {"SKILL.md": ON_DEMAND})), name="letters")
        == "Begin with a greeting."
    )


def test_folder_of_folders_gives_its_skills_by_name(tmp_path: Path) -> None:
    """Folders without SKILL.md, files, hidden folders and deeper ones are skipped; a skill among
    values keeps its position.
    """
    written(
        tmp_path,
        {
            "b/SKILL.md": "B",
            "a/SKILL.md": "A",
            "notes/readme.md": "no skill",
            "readme.md": "no folder",
            ".git/SKILL.md": "hidden",
            "deep/er/SKILL.md": "deeper",
        },
    )

    skills = skill_folders.read(agent_with(Skill("first", "1"), tmp_path, Skill("last", "9")))

    assert [skill.name for skill in skills] == ["first", "a", "b", "last"]


@pytest.mark.accepts("S5")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\nname: y\n---\nBody", Skill("y", "Body")),
        (
            "---\r\nname: y\r\ndescription: d\r\n---\r\nOne\r\nTwo\r\n",
            Skill("y", "One\nTwo", "d", on_demand=True),
        ),
        ("\ufeff---\nname: y\n---\nBody", Skill("y", "Body")),
        ("---\nname: y\n\nBody", Skill("x", "---\nname: y\n\nBody")),
        ("---", Skill("x", "---")),
        ("Text\n---\nname: y\n---\nBody", Skill("x", "Text\n---\nname: y\n---\nBody")),
        ("---\n---\nBody", Skill("x", "Body")),
        ("---\n# a comment\n---\nBody", Skill("x", "Body")),
        (
            "---\nname:\ndescription: ' '\nlicense: MIT\n---\nBody\n---\nrest",
            Skill("x", "Body\n---\nrest"),
        ),
        (
            "---\ndescription: >\n  two\n  lines\n---\nBody",
            Skill("x", "Body", "two lines", on_demand=True),
        ),
        ("", Skill("x", "")),
    ],
    ids=[
        "name",
        "CRLF",
        "byte order mark",
        "unclosed",
        "one line",
        "not at the start",
        "empty",
        "comment",
        "no values",
        "folded",
        "no text",
    ],
)
def test_frontmatter_is_read_as_people_write_it(tmp_path: Path, text: str, expected: Skill) -> None:
    """Its name overrides the folder's; an unclosed one is part of the body."""
    assert read(written(tmp_path / "x", {"SKILL.md": text})) == (expected,)


LAUGHS = "".join(
    f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]\n" for level in range(1, 10)
)
ALIASES = f"---\nl0: &l0 [x]\n{LAUGHS}name: *l9\n---\nBody"
MERGED = "".join(
    f"m{level}: &m{level} {{<<: [{', '.join([f'*m{level - 1}'] * 9)}]}}\n" for level in range(1, 9)
)
MERGES = f"---\nm0: &m0 {{a: x}}\n{MERGED}---\nBody"


@pytest.mark.accepts("S5", "C4")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("---\nname: [\n---\nBody", "the frontmatter is not valid YAML: "),
        ("---\nwhen: 2024-02-30\n---\nBody", "the frontmatter is not valid YAML: ValueError"),
        ("---\nwhen: !!timestamp x\n---\nBody", "the frontmatter is not valid YAML: "),
        ("---\nx: " + "[" * 100 + "\n---\nBody", "line 2 has more than 20 nested brackets"),
        (
            "---\nx: !!python/object/apply:os.getcwd []\n---\nBody",
            "the frontmatter is not valid YAML: ",
        ),
        ("---\njust text\n---\nBody", "the frontmatter must be fields with values"),
        (
            "---\nname: 7\n---\nBody",
            "name in the frontmatter must be text, not int; put it into quotes",
        ),
        (
            "---\ndescription: [a]\n---\nBody",
            "description in the frontmatter must be text, not list",
        ),
        (
            "---\na: &a x\nb: *a\n---\nBody",
            "line 3 has an alias or a merge key; write the value out",
        ),
        ("---\n<<: {name: y}\n---\nBody", "line 2 has an alias or a merge key"),
        (ALIASES, "has an alias or a merge key"),
        (MERGES, "has an alias or a merge key"),
        (
            "---\nx: " + "y" * 20_000 + "\n---\nBody",
            "the frontmatter has 20003 characters, more than 16000",
        ),
        ("---\nname: " + "x" * 65 + "\n---\nBody", "skill name"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"\0", "is a binary file"),
        (b"x" * 1_000_001, "is too large"),
    ],
)
def test_skill_that_cannot_be_read_is_an_error_that_names_the_file(
    tmp_path: Path, text: str | bytes, reason: str
) -> None:
    """Other skills of the folder do not hide the error."""
    written(tmp_path, {"a/SKILL.md": "fine", "x/SKILL.md": text})

    with pytest.raises(errors.ConfigurationError) as caught:
        read(tmp_path)

    assert caught.value.message.startswith(f"{tmp_path / 'x' / 'SKILL.md'}: ")
    assert reason in caught.value.message


@pytest.mark.parametrize("name", ["nowhere", "file.md"])
def test_path_that_is_no_folder_is_a_configuration_error(tmp_path: Path, name: str) -> None:
    """The message has the path."""
    written(tmp_path, {"file.md": "text"})

    with pytest.raises(
        errors.ConfigurationError, match=f"the folder of skills .*{name} cannot be read"
    ):
        read(tmp_path / name)


def test_two_folders_of_one_name_are_refused_with_both_paths(tmp_path: Path) -> None:
    """Even if the frontmatter gives the name."""
    written(tmp_path, {"a/SKILL.md": "---\nname: b\n---\nA", "b/SKILL.md": "B"})

    with pytest.raises(errors.ConfigurationError) as caught:
        read(tmp_path)

    assert (
        caught.value.message
        == f"agent clerk: the skill 'b' comes from {tmp_path / 'a'} and from {tmp_path / 'b'};"
        " rename one, in a folder with name: in the frontmatter"
    )


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """A skill whose folder has links out of it and binary files, and a secret next to the
    folder.
    """
    (tmp_path / "secret.md").write_text("the password is swordfish")
    folder = written(
        tmp_path / "x",
        {
            "SKILL.md": ON_DEMAND,
            "inside.md": "inside",
            ".hidden": "h",
            "logo.png": b"\x89PNG\0",
            "big.md": b"x" * 1_000_001,
        },
    )
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "out").symlink_to(tmp_path)
    (folder / "null").symlink_to("/dev/null")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "socket"))
    return folder


@pytest.mark.accepts("S6")
async def test_what_leads_out_of_the_folder_or_is_no_text_is_no_part_of_the_skill(
    trapped: Path,
) -> None:
    """Loading it neither follows a link nor blocks on a pipe."""
    [skill] = read(trapped)

    assert skill.files == {"inside.md": "inside"}


@pytest.mark.accepts("S6")
@pytest.mark.parametrize(
    "path",
    [
        *[
            "../secret.md",
            "inside.md/../../secret.md",
            "..",
            "/",
            "/etc/passwd",
            "link.md",
            "out/secret.md",
            "out",
            "null",
            "pipe",
            "socket",
        ],
        *[
            ".hidden",
            "logo.png",
            "big.md",
            "inside.md\0",
            "inside.md\0.png",
            "~/x",
            "C:\\x",
            "%2e%2e/secret.md",
            "INSIDE.md",
            "x" * 10_000,
        ],
    ],
)
async def test_no_path_leads_out_of_the_skill(trapped: Path, path: str) -> None:
    """Each is refused with the same message, which lists the files."""
    with pytest.raises(ValueError) as caught:
        await load(read(trapped), name="letters", path=path)

    assert str(caught.value).endswith("; it has inside.md")
    assert len(str(caught.value)) < 300


@pytest.mark.accepts("S6")
@pytest.mark.parametrize("name", ["invoices", "", "../x", "inlined"])
async def test_unknown_name_says_which_there_are(trapped: Path, name: str) -> None:
    """An inlined skill cannot be loaded, because it is in the prompt."""
    with pytest.raises(
        ValueError, match=f"there is no skill {name!r} to be read; there is letters"
    ):
        await load((*read(trapped), Skill("inlined", "text")), name=name)


def test_skill_file_that_is_a_link_out_or_no_file_is_refused(trapped: Path, tmp_path: Path) -> None:
    """A link that stays inside is followed."""
    for name, target in {
        "out": tmp_path / "secret.md",
        "gone": tmp_path / "gone",
        "self": Path("SKILL.md"),
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").symlink_to(target)
        with pytest.raises(errors.ConfigurationError, match=r"SKILL\.md: "):
            read(tmp_path / name)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "SKILL.md")
    with pytest.raises(errors.ConfigurationError, match="not a regular file"):
        read(tmp_path / "pipe")
    written(tmp_path / "inside", {"real.md": "Text"})
    (tmp_path / "inside" / "SKILL.md").symlink_to("real.md")

    assert read(tmp_path / "inside") == (Skill("inside", "Text"),)


def test_folder_of_a_skill_may_be_a_link(tmp_path: Path) -> None:
    """Its operator created it; the skill has the name of the link."""
    written(tmp_path, {"shared/letters-2/SKILL.md": "Text"})
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "letters").symlink_to(tmp_path / "shared" / "letters-2")

    assert read(tmp_path / "skills") == (Skill("letters", "Text"),)


@pytest.mark.accepts("S3", "S6", "S8")
async def test_folder_that_kubernetes_mounts_is_read_and_read_anew(tmp_path: Path) -> None:
    """A ConfigMap: each file is a link through `..data` to a folder with a date, which an update
    replaces.
    """
    (tmp_path / "secret.md").write_text("the password is swordfish")
    folder = tmp_path / "letters"
    written(folder / "..2026_01_01", {"SKILL.md": ON_DEMAND, "a.md": "Dear"})
    (folder / "..data").symlink_to("..2026_01_01")
    for name in ("SKILL.md", "a.md"):
        (folder / name).symlink_to(Path("..data") / name)
    (folder / "out.md").symlink_to(tmp_path / "secret.md")

    [before] = read(folder)
    written(
        folder / "..2026_02_02", {"SKILL.md": ON_DEMAND.replace("greeting", "curse"), "a.md": "Sir"}
    )
    (folder / "..new").symlink_to("..2026_02_02")
    (folder / "..new").rename(folder / "..data")
    [after] = read(tmp_path)

    assert (before.instructions, before.files) == ("Begin with a greeting.", {"a.md": "Dear"})
    assert (after.instructions, after.files) == ("Begin with a curse.", {"a.md": "Sir"})


def test_folder_of_folders_that_kubernetes_mounts_is_read(tmp_path: Path) -> None:
    """With paths in the ConfigMap's items each skill is a link."""
    written(
        tmp_path / "..2026_01_01", {"letters/SKILL.md": ON_DEMAND, "letters/forms/a.md": "Dear"}
    )
    (tmp_path / "..data").symlink_to("..2026_01_01")
    (tmp_path / "letters").symlink_to("..data/letters")

    [skill] = read(tmp_path)

    assert (skill.name, skill.files) == ("letters", {"forms/a.md": "Dear"})


@pytest.mark.accepts("S6")
@pytest.mark.parametrize("target", ["..", "../elsewhere", "..data", "../x/SKILL.md", "gone"])
def test_mount_that_leads_out_of_its_folder_is_none(tmp_path: Path, target: str) -> None:
    """Only the folder next to it is followed; the rest is loaded like any folder."""
    written(
        tmp_path / "elsewhere", {"SKILL.md": "the password is swordfish", "secret.md": "swordfish"}
    )
    folder = written(tmp_path / "x", {"SKILL.md": ON_DEMAND, "a.md": "Dear"})
    (folder / "..data").symlink_to(target)

    [skill] = read(folder)

    assert (skill.instructions, skill.files) == ("Begin with a greeting.", {"a.md": "Dear"})


@pytest.mark.parametrize(
    "files",
    [{f"{n}.md": "x" for n in range(501)}, {f"{n}.md": "x" * 999_999 for n in range(9)}],
    ids=["many", "large"],
)
def test_folder_with_too_much_in_it_is_refused(tmp_path: Path, files: dict[str, str]) -> None:
    """A wrong path does not fill the worker's memory."""
    with pytest.raises(
        errors.ConfigurationError,
        match="more than 500 files beside it, or more than 8000000 characters of text",
    ):
        read(written(tmp_path / "x", {"SKILL.md": ON_DEMAND, **files}))
