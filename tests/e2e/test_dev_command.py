"""`perdure dev`: a server, with or without agents, until Ctrl-C."""

from __future__ import annotations

import base64
import json
import socket

import httpx
import pytest

from ..support.e2e.command_line import NO_MODEL, CommandLine, is_alive, status_of


@pytest.mark.accepts("H72", "H127")
def test_dev_serves_until_ctrl_c_and_leaves_nothing_running(perdure: CommandLine) -> None:
    """It prints the addresses of the server, the web UI and the page, all answer, and after Ctrl-C
    all are gone with exit code 0.
    """
    with perdure.started("dev", "--port", "0") as dev:
        address = dev.wait_for(r"Temporal  (\S+)")[1]
        ui = dev.wait_for(r"web UI    (\S+)")[1]
        page = dev.wait_for(r"page      (\S+)")[1]
        dev.wait_for("Ctrl-C")
        note = json.loads((perdure.folder / ".perdure/server.json").read_text(encoding="utf-8"))
        answered = status_of(ui), status_of(page)
        base, _, token = page.partition("/ui/#token=")
        bare = httpx.get(f"{base}/v1/about")
        about = httpx.get(f"{base}/v1/about", headers={"Authorization": f"Bearer {token}"}).json()
        again = perdure("dev")
        code = dev.interrupt()

    assert (note["address"], note["ui"], answered) == (address, ui, (200, 200))
    assert bare.status_code == 401
    assert about["temporal_ui"] == f"{ui}/namespaces/default/workflows"
    assert "page      " not in again.stderr
    assert (again.returncode, "is already running" in again.stderr, address in again.stderr) == (
        0,
        True,
        True,
    )
    assert code == 0
    assert not is_alive(note["pid"])
    assert not (perdure.folder / ".perdure/server.json").exists()
    assert "Traceback" not in dev.stderr


@pytest.mark.slow
def test_dev_moves_from_a_taken_port_and_says_so(perdure: CommandLine) -> None:
    """To the next free port, and it names the one that was asked for."""
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = somebody.getsockname()[1]
        with perdure.started("dev", "--port", str(taken)) as dev:
            port = int(dev.wait_for(r"Temporal  127\.0\.0\.1:(\d+)")[1])
            said = dev.stderr
            code = dev.interrupt()

    assert f"port {taken} is taken" in said
    assert taken < port <= taken + 50
    assert code == 0


@pytest.mark.accepts("P30", "P54", "V28")
@pytest.mark.slow
@pytest.mark.accepts("D65")
def test_dev_with_agents_runs_their_turns_and_no_second_program_gets_them(
    perdure: CommandLine,
) -> None:
    """One command runs server and worker; a command in another terminal runs a turn; Ctrl-C ends
    both with exit code 0. A build id in the environment does not count.
    """
    with perdure.started("dev", "agents:talker", "--port", "0", PERDURE_BUILD_ID="v1") as dev:
        address = dev.wait_for(r"Temporal  (\S+)")[1]
        dev.wait_for("talker on task queue 'perdure'")
        note = json.loads((perdure.folder / ".perdure/server.json").read_text(encoding="utf-8"))
        done = perdure("run", "talker", "hello", "--address", address)
        second = perdure("dev", "agents:registry")
        third = perdure("dev", "agents:registry", "--reload")
        code = dev.interrupt()

    assert (done.returncode, NO_MODEL in done.stdout) == (0, True)
    assert second.returncode == 2
    assert (
        "`perdure dev agents:talker` is running in this folder and polls task queue 'perdure'"
        in second.stderr
    )
    assert "http" not in second.stdout + second.stderr
    assert third.returncode == 2
    assert "`perdure dev agents:talker` is running in this folder" in third.stderr
    assert "http" not in third.stdout + third.stderr
    assert code == 0
    assert not is_alive(note["pid"])


@pytest.mark.slow
def test_dev_refuses_what_is_no_agent_before_it_starts_a_server(perdure: CommandLine) -> None:
    """Exit code 2, and no folder is created."""
    done = perdure("dev", "agents:nothing")

    assert done.returncode == 2
    assert not (perdure.folder / ".perdure").exists()


@pytest.mark.slow
@pytest.mark.accepts("H72")
def test_dev_without_the_extra_http_has_no_page(perdure: CommandLine) -> None:
    """It runs as before; `--no-ui` leaves the page out too."""
    (perdure.folder / "missing").mkdir()
    (perdure.folder / "missing/starlette.py").write_text("raise ImportError", encoding="utf-8")
    told = []
    for options, path in (((), perdure.folder / "missing"), (("--no-ui",), perdure.folder)):
        perdure.environment["PYTHONPATH"] = str(path)
        with perdure.started("dev", "agents:talker", "--port", "0", *options) as dev:
            dev.wait_for("talker on task queue 'perdure'")
            told.append(dev.stderr)
            dev.interrupt()

    assert ["web UI    " in one for one in told] == [True, False]
    assert ["page      " in one for one in told] == [False, False]


@pytest.mark.slow
@pytest.mark.accepts("G4", "G14")
def test_dev_encrypts_and_its_web_ui_decrypts(perdure: CommandLine) -> None:
    """With a key that it makes and keeps; a command with the key reads the turn, one without does
    not, and no page but the web UI may ask the codec server.
    """
    started = ("dev", "agents:talker", "--port", "0", "--encrypt")
    with perdure.started(*started) as dev:
        address = dev.wait_for(r"Temporal  (\S+)")[1]
        ui = dev.wait_for(r"web UI    (\S+)")[1]
        keys = dev.wait_for(r"export PERDURE_ENCRYPTION_KEYS_FILE=(\S+)")[1]
        dev.wait_for("talker on task queue 'perdure'")
        key = {"PERDURE_ENCRYPTION_KEYS_FILE": keys}
        ran = perdure("run", "talker", "hello", "--id", "t1", "--address", address, **key)
        without = perdure("show", "t1", "--address", address)
        codec = httpx.get(f"{ui}/api/v1/settings").json()["Codec"]["Endpoint"]
        events = httpx.get(f"{ui}/api/v1/namespaces/default/workflows/t1/history").json()
        stored = events["history"]["events"][0]["workflowExecutionStartedEventAttributes"]["input"]
        asked = [
            httpx.post(f"{codec}/decode", json=stored, headers={"origin": origin})
            for origin in (ui, "http://evil.example.com")
        ]
        code = dev.interrupt()
    with perdure.started(*started, "--no-ui") as again:
        again.wait_for("Ctrl-C")
        kept = perdure.folder.joinpath(".perdure/encryption-keys").read_text(encoding="utf-8")
        again.interrupt()

    assert ran.returncode == 0, ran.stderr
    assert (without.returncode, "encrypted with the key 'dev'" in without.stderr) == (2, True)
    assert "hello" not in json.dumps(events)
    assert [answer.status_code for answer in asked] == [200, 403]
    assert "hello" in base64.b64decode(asked[0].json()["payloads"][0]["data"]).decode()
    assert (perdure.folder / ".perdure/encryption-keys").stat().st_mode & 0o077 == 0
    assert kept.startswith("dev:")
    assert code == 0
