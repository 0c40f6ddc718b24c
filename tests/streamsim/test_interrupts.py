"""Ctrl-C from a command's first moment to its last: 130 and no traceback, wherever it comes.

The signal is sent at an exact place: when a module is about to be imported, or when the interpreter ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from streamsim_protocol.interrupt import EXIT_CODE

pytestmark = pytest.mark.slow

SITE = """
import atexit, os, signal, sys

class Interrupter:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"] and os.environ["INTERRUPT_IN"] in " ".join(sys.orig_argv):
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter)
if os.environ["INTERRUPT_AT"] == "start" and os.environ["INTERRUPT_IN"] in " ".join(sys.orig_argv):
    os.kill(os.getpid(), signal.SIGINT)
if os.environ["INTERRUPT_AT"] == "end":
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""
JOIN = ("join", "ws://127.0.0.1:1/v1/lanes/1?token=t", "--agent", "null")


def call(
    folder: Path, module: str, *arguments: object, at: str, within: str = "", ignored: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE ARGUMENTS``, with a Ctrl-C at the import ``at``."""
    (folder / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    search = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": search, "INTERRUPT_AT": at, "INTERRUPT_IN": within},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None,
    )


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("streamsim.cli", ""),
        ("argparse", ""),
        ("streamsim_protocol.terminal", ""),
        ("streamsim.commands.demo", "streamsim: interrupted\n"),
        ("streamsim.commands.doctor", "streamsim: interrupted\n"),
        ("streamsim.episodes.check", "streamsim check: interrupted\n"),
        ("msgspec", "streamsim: interrupted\n"),
    ],
)
def test_while_a_command_is_loaded(tmp_path: Path, at: str, said: str) -> None:
    done = call(tmp_path, "streamsim", "check", "nowhere", at=at)
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_CODE, "", said)


@pytest.mark.parametrize("module", ["streamsim", "streamsim_agents.registry"])
def test_what_is_not_interrupted_goes_on(tmp_path: Path, module: str) -> None:
    """The same without a signal, and with one that is ignored, as for a command in the background."""
    arguments = ("check", "nowhere") if module == "streamsim" else ("--check", "null")
    plain = call(tmp_path, module, *arguments, at="never")
    assert plain.returncode == (2 if module == "streamsim" else 0)
    ignoring = call(tmp_path, module, *arguments, at="argparse", ignored=True)
    assert (ignoring.returncode, ignoring.stdout, ignoring.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )


def test_when_all_is_done(tmp_path: Path) -> None:
    done = call(tmp_path, "streamsim", "make", "--help", at="end")
    assert (done.returncode, done.stderr) == (EXIT_CODE, "")
    assert done.stdout.startswith("usage: streamsim make ")


@pytest.mark.parametrize("at", ["start", "streamsim_agents.agent", "streamsim_agents.runtime", "asyncio"])
def test_while_join_becomes_the_agents_program(tmp_path: Path, at: str) -> None:
    done = call(tmp_path, "streamsim", *JOIN, at=at, within="--called")
    assert (done.returncode, done.stdout, done.stderr) == (
        EXIT_CODE,
        "",
        "streamsim join: interrupted; played 0 sessions\n",
    )


@pytest.mark.parametrize("at", ["streamsim_agents.joining", "streamsim_agents.runtime", "asyncio"])
def test_while_the_agents_program_is_loaded(tmp_path: Path, at: str) -> None:
    done = call(tmp_path, "streamsim_agents", *JOIN[1:], at=at)
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_CODE, "", "")


def test_while_the_processes_of_make_start(tmp_path: Path) -> None:
    """A terminal's Ctrl-C reaches them too; it is for the command alone to act upon."""
    command = (
        "make",
        "rooms",
        "--count",
        "2",
        "--processes",
        "2",
        "--seconds",
        "20",
        "-o",
        tmp_path / "made",
    )
    done = call(tmp_path, "streamsim", *command, at="start", within="--multiprocessing-fork")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert (tmp_path / "made" / "public" / "dataset.json").is_file()


def test_the_installed_script_is_guarded(tmp_path: Path) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, function = project["project"]["scripts"]["streamsim"].partition(":")
    (tmp_path / "script.py").write_text(
        f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n", encoding="utf-8"
    )
    done = call(tmp_path, "script", "check", "nowhere", at="argparse")
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_CODE, "", "")
