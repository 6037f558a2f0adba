"""A hand-written MCP server on standard input and output that can misbehave: `raw_server.py
FOLDER [MANNER]`.

It records its process id and those of its children in FOLDER, and reads from there how to describe
its tools. MANNER is the way it starts.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ARGUMENTS = [*sys.argv[1:], "", ""]  # absent when a test imports this module
FOLDER, MANNER = Path(ARGUMENTS[0]), ARGUMENTS[1]
ODD = "notes.read (v2) für alle"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


def note(pid: int) -> None:
    with (FOLDER / "pids").open("a") as file:
        file.write(f"{pid}\n")


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tools() -> list[dict[str, Any]]:
    described = FOLDER / "description"
    said = described.read_text() if described.exists() else "Does what its name says."
    names = [name for name in DO if not (FOLDER / f"without-{name}").exists()]
    more: dict[str, Any] = {"annotations": {"readOnlyHint": True}}
    if (result := FOLDER / "output-schema").exists():
        more["outputSchema"] = json.loads(result.read_text())
    schema = json.loads((FOLDER / "schema").read_text()) if (FOLDER / "schema").exists() else TEXT
    return [{"name": name, "description": said, "inputSchema": schema, **more} for name in names]


def texts(*items: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": item} for item in items]}


def freeze(*_: Any) -> None:
    time.sleep(1000)


def die(*_: Any) -> None:
    print(
        f"fatal: key {os.environ.get('NOTES_KEY', 'unset')} is broken", file=sys.stderr, flush=True
    )
    os._exit(3)


def vanish(*_: Any) -> None:
    """Close the output and keep running."""
    os.close(1)
    time.sleep(1000)


def flood(*_: Any) -> None:
    while True:
        print("loading, please wait …", flush=True)


def long_line(*_: Any) -> None:
    while True:
        sys.stdout.write("x" * 1_000_000)


def spawn(text: str, _: object) -> None:
    """Start a child, and a grandchild that left the process group and lost its parent; then never
    answer.
    """
    child = subprocess.Popen(["sleep", "1000"])
    script = (
        "import subprocess; print(subprocess.Popen(['sleep', '1000'], start_new_session=True,"
        " stdout=subprocess.DEVNULL).pid)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], stdout=subprocess.PIPE, text=True, check=True
    )
    for pid in (child.pid, int(done.stdout)):
        note(pid)


def pictures(*_: Any) -> dict[str, Any]:
    image = {"type": "image", "mimeType": "image/png", "data": "A" * 8000}
    link = {
        "type": "resource_link",
        "uri": "file:///notes/1",
        "name": "the first note",
        "mimeType": "text/plain",
    }
    whole = {"type": "resource", "resource": {"uri": "file:///notes/2", "text": "the second note"}}
    blob = {
        "type": "resource",
        "resource": {"uri": "file:///notes/3", "mimeType": "application/pdf", "blob": "A" * 4000},
    }
    return {"content": [{"type": "text", "text": "see"}, image, link, whole, blob]}


DO: dict[str, Callable[[str, Any], dict[str, Any] | None]] = {
    "echo": lambda text, _: texts(text),
    "fail": lambda text, _: {**texts(f"no such note: {text}"), "isError": True},
    "quote": lambda text, _: texts(f"your key is {os.environ.get('NOTES_KEY', 'unset')}"),
    "refuse": lambda text, _: None,
    "hang": lambda text, _: None,
    "freeze": freeze,
    "die": die,
    "vanish": vanish,
    "flood": flood,
    "long_line": long_line,
    "spawn": spawn,
    "pictures": pictures,
    "numbers": lambda text, _: {**texts("two numbers"), "structuredContent": {"numbers": [1, 2]}},
    "show_env": lambda text, _: texts(json.dumps(sorted(os.environ))),
    ODD: lambda text, _: texts(text),
}


def serve(line: str) -> None:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        said = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
        send({"id": message["id"], "result": said})
    elif method == "tools/list" and MANNER == "listless":
        return
    elif method == "tools/list":
        send({"id": message["id"], "result": {"tools": tools()}})
    elif method == "tools/call":
        if params["name"] == "refuse":
            code, words = params["arguments"]["text"].split(maxsplit=1)
            send(
                {
                    "id": message["id"],
                    "error": {
                        "code": int(code),
                        "message": words.replace("KEY", os.environ.get("NOTES_KEY", "unset")),
                    },
                }
            )
            return
        token = params.get("_meta", {}).get("progressToken")
        result = DO[params["name"]](params.get("arguments", {}).get("text", ""), token)
        if result is not None:
            send({"id": message["id"], "result": result})
    elif "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


def start() -> None:
    note(os.getpid())
    if MANNER == "exit":
        print(f"no such database: {os.environ.get('NOTES_KEY', '')}", file=sys.stderr)
        sys.exit(2)
    if MANNER == "silent":
        threading.Event().wait()
    if MANNER == "garbage":
        while True:
            print("Welcome to the server of notes!", flush=True)
            time.sleep(0.01)
    if MANNER == "once" and not (FOLDER / "began").exists():  # the first start fails
        (FOLDER / "began").touch()
        sys.exit(1)


if __name__ == "__main__":
    start()
    for item in sys.stdin:
        serve(item)
