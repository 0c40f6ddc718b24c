"""Whatever stands in data and names of files, the terminal gets text, and an error stays one line."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.table import Table

from streamsim.cli import main
from streamsim.notice import notice
from streamsim.report.console import PatientConsole

EVIL = "a\x1b[31m\nb\x9b2J"
SHOWN = r"a\x1b[31m\nb\x9b2J"


def controls(text: str) -> set[str]:
    return {char for char in text if not char.isprintable() and char != "\n"}


def test_a_notice_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    notice(f"about {EVIL}")
    assert capsys.readouterr().err == f"about {SHOWN}\n"


def test_a_notice_that_nobody_can_read_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    notice("lost")


@pytest.mark.parametrize(
    "command", [["check"], ["score"], ["rescore"], ["verify"], ["run", "--agent", "null"]]
)
def test_an_error_that_names_a_file(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / EVIL
    (folder / "public").mkdir(parents=True)
    (folder / "public" / "dataset.json").write_text("{")
    (folder / "run.json").write_text("{")
    assert main([command[0], str(folder), *command[1:]]) in (1, 2)
    printed = capsys.readouterr()
    assert controls(printed.err) == set()
    if command != ["check"]:  # which finds, and prints its findings
        assert printed.err.count("\n") == 1 and SHOWN in printed.err


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "d", f"--{EVIL}"])
    assert capsys.readouterr().err == (
        f"streamsim check: unrecognized arguments: --{SHOWN}\nsee streamsim check --help\n"
    )


def test_findings_of_import_and_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"video": f"{EVIL}.mp4", "time": 1, "question": "?", "id": "good", "episode": "e"},
        {"video": "v.mp4", "time": "never", "question": "?", "id": EVIL},
    ]
    table = tmp_path / f"{EVIL}.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "d"
    assert main(["import", "csv", str(table), "-o", str(out)]) == 1
    found, *absent = capsys.readouterr().err.splitlines()
    assert found.startswith(f"error: {tmp_path}/{SHOWN}.jsonl:2: {SHOWN}: time: ")
    assert absent == ["absent videos (1), looked for at:", f"  {tmp_path}/{SHOWN}.mp4"]
    episodes = out / "public" / "episodes.jsonl"
    episodes.write_text(episodes.read_text().replace('"good"', json.dumps(EVIL)))
    assert main(["check", str(out)]) == 1
    printed = capsys.readouterr().out
    assert controls(printed) == set() and f": {SHOWN}: id: " in printed


def test_tables_and_markup() -> None:
    console = PatientConsole(file=io.StringIO(), width=80, no_color=True)
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    console.print(table)
    console.print(f"[bold]of[/bold] {EVIL}", highlight=False)
    console.print(f"notice: {EVIL} [bold]", markup=False, highlight=False, soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert controls(shown) == set()
    assert shown.endswith(f"of a\\x1b[31m\nb\\x9b2J\nnotice: {SHOWN} [bold]\n")


def test_colours_of_our_own_stay() -> None:
    console = PatientConsole(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    console.print("[red]late[/red]")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "\x1b[31mlate\x1b[0m\n"


@pytest.mark.slow
def test_what_a_server_says_to_an_agent() -> None:
    body = b"not\x1b[31m you\x9b"
    response = b"HTTP/1.1 403 No\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    def answer(listening: socket.socket) -> None:
        peer, _ = listening.accept()
        with peer:
            while b"\r\n\r\n" not in peer.recv(1 << 16):
                pass
            peer.sendall(response)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, args=(listening,))
        thread.start()
        url = f"ws://127.0.0.1:{listening.getsockname()[1]}/v1/lanes/1"
        command = [sys.executable, "-m", "streamsim_agents", url, "--agent", "null"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        thread.join()
    assert done.returncode == 2
    assert done.stderr == "streamsim agent: the server refused: not\\x1b[31m you\ufffd\n"
