"""Run the blocks of a page in order, in one namespace, as in a notebook.

The test of a page provides what the page takes for granted, such as a client or a turn. Every block
must be run and every function in it must be called, because a function that is only defined proves
nothing.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
import re
import sys
import tomllib
import typing
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

from perdure import Agent
from perdure.activities.provider import Provider
from perdure.clients import AgentClient
from perdure.temporal.connect import connect
from perdure.temporal.names import TASK_QUEUE
from perdure.worker import AgentWorker
from perdure.worker.settings import WorkerSettings

from . import given
from .commands import Terminal, commands
from .not_run import is_run
from .pages import README, Block, Page

MAIN = "openai:gpt-5-mini"
_ENTER = "__entered__"
_GRACE = WorkerSettings(grace=timedelta(seconds=1))
_ARROWS = frozenset("▶◀")
"""A block of text with one of them is a drawing, of which nothing can be run."""


class Story:
    """One page, with a folder and a Temporal server of its own.

    Attributes:
        terminal: Where its commands are run.
        printed: The output of its Python blocks.
    """

    def __init__(self, page: Page, folder: Path, address: str) -> None:
        self.terminal = Terminal(folder, address)
        self.printed = ""
        self._page = page
        self._folder = str(folder)
        self._address = address
        self._left = list(page.blocks)
        self._module = ModuleType(page.module)
        self._functions: set[str] = set()
        self._entered: set[str] = set()
        self._stack = AsyncExitStack()
        vars(self._module)[_ENTER] = self._entered.add
        for name, text in {**README.files(), **page.files()}.items():
            (folder / name).write_text(text, encoding="utf-8")

    async def __aenter__(self) -> Story:
        # dataclasses and pydantic look up their module
        sys.modules[self._page.module] = self._module
        sys.path.insert(0, self._folder)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.run(*self._left)
        finally:
            await self._stack.aclose()
            sys.path.remove(self._folder)
            for name in [
                self._page.module,
                *(name for name, module in sys.modules.items() if self._is_in_folder(module)),
            ]:
                sys.modules.pop(name)
        if kind is None:
            assert self._functions <= self._entered, (
                f"nobody calls {sorted(self._functions - self._entered)}"
            )

    def __getitem__(self, name: str) -> Any:
        """A name that a block has defined."""
        return vars(self._module)[name]

    def given(self, **values: Any) -> None:
        """Define names that the next blocks take for granted; `given.py` has the types."""
        types = typing.get_type_hints(given)
        wrong = [
            name
            for name, value in values.items()
            if not isinstance(
                value, typing.get_origin(types.get(name, type)) or types.get(name, type)
            )
        ]
        assert not wrong, f"given.py says otherwise of {wrong}"
        vars(self._module).update(values)

    async def through(self, heading: str) -> None:
        """Run the blocks up to the end of a section."""
        last = max(index for index, block in enumerate(self._left) if block.heading == heading)
        await self.run(*self._left[: last + 1])

    async def defining(self, name: str) -> Any:
        """Run blocks until one has defined this name, and return its value."""
        before = vars(self._module).get(name)
        while self._left and vars(self._module).get(name) is before:
            await self.run(self._left[0])
        return self[name]

    async def prints(self, called: Awaitable[object]) -> str:
        """The output of a function that a block defines."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            await called
        return printed.getvalue()

    async def up_to(self, heading: str, language: str = "python") -> Block:
        """Run the blocks before the next one of this language in a section; the caller runs or
        compares that one itself.
        """
        found = next(
            block for block in self._left if (block.heading, block.language) == (heading, language)
        )
        await self.run(*self._left[: self._left.index(found)])
        self._left.remove(found)
        return found

    async def run(self, *blocks: Block) -> None:
        """Run these blocks."""
        for block in blocks:
            await self._run_one(block)
            if block in self._left:
                self._left.remove(block)

    async def works(
        self,
        app: AgentWorker | Agent[Any] | Sequence[Agent[Any]],
        model: Provider | None = None,
        queue: str = TASK_QUEUE,
        settings: WorkerSettings = _GRACE,
    ) -> AgentClient:
        """A client, and a worker until the end of the page.

        With `model`, it stands in for all models; `main` is one of them.
        """
        app = app if isinstance(app, AgentWorker) else AgentWorker(app)
        providers = app.providers if model is None else dict.fromkeys(app.all_providers(), model)
        played = replace(
            app, models={"main": MAIN, **app.models}, providers=providers, task_queue=queue
        )
        client = await connect(self._address)
        await self._stack.enter_async_context(played.running(client, settings=settings))
        return AgentClient.from_temporal(client, task_queue=queue)

    async def _run_one(self, block: Block) -> None:
        if block.language == "python":
            await self._execute(block)
        elif block.language == "console":
            for command in commands(block):
                await self._type(command)
        elif block.language in ("json", "toml", "yaml"):
            read(block)
        elif not _ARROWS & set(block.text):
            assert self._is_output(block), (
                f"{block}: nobody runs or compares this block of {block.language or 'no language'}"
            )

    async def _type(self, command: Any) -> None:
        if command.words[0] == "export":
            self.terminal.export(command)
        elif is_run(command):
            await self.terminal.run(command)

    def _is_in_folder(self, module: ModuleType) -> bool:
        return (getattr(module, "__file__", None) or "").startswith(self._folder)

    def _is_output(self, block: Block) -> bool:
        """Whether it is output of the program before it, which is compared where programs are
        run.
        """
        before = self._page.blocks[: self._page.blocks.index(block)]
        return (
            bool(before)
            and before[-1].is_program
            and self._page.output_of(before[-1]) == block.text
        )

    async def _execute(self, block: Block) -> None:
        if block.is_program or block.is_test:
            return  # test_programs.py runs them, each in its own process
        tree = ast.parse(re.sub(r"localhost:7233", self._address, block.text))
        ast.increment_lineno(tree, block.line - 1)
        if not block.file:  # the commands and tests of the page run its files
            self._watch(tree, block)
        code = compile(
            tree, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            result = eval(code, vars(self._module))
            if inspect.iscoroutine(result):
                await result
        self.printed += printed.getvalue()

    def _watch(self, tree: ast.Module, block: Block) -> None:
        """Record the calls of each function."""
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{node.name} ({block.page}:{node.lineno})"
                note = ast.parse(f"{_ENTER}({name!r})").body[0]
                node.body.insert(
                    1 if ast.get_docstring(node) is not None else 0, ast.copy_location(note, node)
                )
                self._functions.add(name)
        ast.fix_missing_locations(tree)


def read(block: Block) -> list[Any]:
    """The values in a block of JSON (a single value or JSON lines), TOML or YAML."""
    if block.language == "toml":
        return [tomllib.loads(block.text)]
    if block.language == "yaml":
        return list(yaml.safe_load_all(block.text))
    try:
        return [json.loads(block.text)]
    except ValueError:
        return [json.loads(line) for line in block.text.splitlines()]
