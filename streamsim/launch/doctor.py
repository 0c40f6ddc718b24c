"""What a run needs of this machine, each thing tried: versions, codecs, GPU, port, disk, clock.

A check is good, bad (a run would fail or its figures would be wrong) or a note (worth knowing). This
module starts processes for what must not be imported here, such as torch.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import msgspec

from streamsim import __version__
from streamsim.errors import StreamsimError, UsageError
from streamsim.launch.interpreter import RegistryRefused, ask_registry

PACKAGES = ("aiohttp", "av", "msgspec", "numpy", "pillow", "rich", "websockets")
OPTIONAL_PACKAGES = ("torch", "transformers")
MIN_FREE_BYTES = 1 << 30
"""A journal is small; the spool of an hour at one frame a second is about 160 MB, and there may be many."""
SLOW_SYNC_S = 0.5
QUERY_TIMEOUT_S = 60.0
_TORCH_QUESTION = (
    "import torch; print(torch.cuda.is_available(), "
    "torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was tried. ``hint`` says what to do about it, empty where nothing is needed."""

    name: str
    status: Literal["good", "bad", "note"]
    detail: str
    hint: str = ""


def run_checks(folder: Path) -> list[Check]:
    """All checks; ``folder`` is where runs would be written."""
    return [
        *_check_versions(),
        _check_codecs(),
        *_check_gpu(),
        _check_port(),
        *(_check_disk(name, place) for name, place in _places(folder)),
        _check_clock(),
    ]


def list_agents(python: str | None = None) -> list[dict[str, Any]]:
    """All agents that an interpreter (None: this one) knows, with arguments, as its registry tells.

    ``UsageError`` if it cannot be asked.
    """
    try:
        said = ask_registry(python, ["--list"], timeout_s=QUERY_TIMEOUT_S)
    except RegistryRefused as error:
        raise UsageError(f"{python or sys.executable!r} cannot list agents: {error}") from error
    listings: list[dict[str, Any]] = json.loads(said)
    return listings


def _check_versions() -> Iterator[Check]:
    yield Check(
        name="streamsim",
        status="good",
        detail=f"{__version__} on Python {platform.python_version()}, {platform.platform()}",
    )
    found, absent = _versions(PACKAGES)
    if absent:
        yield Check(
            name="packages",
            status="bad",
            detail=f"not installed: {', '.join(absent)}",
            hint="install streamsim anew: pip install streamsim",
        )
    yield Check(name="packages", status="good", detail=", ".join(found))
    found, absent = _versions(OPTIONAL_PACKAGES)
    yield Check(
        name="models",
        status="note" if absent else "good",
        detail=", ".join(found) if found else f"not installed: {', '.join(absent)}",
        hint="for agents with a model of their own: pip install 'streamsim[vlm]'" if absent else "",
    )


def _versions(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    found, absent = [], []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            absent.append(name)
    return found, absent


def _check_codecs() -> Check:
    from streamsim.episodes.codec import DECODERS, missing_decoders, try_round_trip

    missing = missing_decoders()
    try:
        with tempfile.TemporaryDirectory(prefix="streamsim-doctor-") as folder:
            try_round_trip(Path(folder))
    except StreamsimError as error:
        return Check(name="codecs", status="bad", detail=str(error), hint="install a wheel of av from PyPI")
    if missing:
        return Check(
            name="codecs",
            status="note",
            detail=f"H.264 works; no decoder for {', '.join(missing)}",
            hint="videos in these formats cannot be played: install a wheel of av from PyPI",
        )
    return Check(name="codecs", status="good", detail=f"decodes {', '.join(DECODERS)}; encodes h264")


def _check_gpu() -> Iterator[Check]:
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    said = _ask(query)
    if not said:
        yield Check(
            name="gpu", status="note", detail="no NVIDIA GPU found", hint="models will run on the CPU"
        )
        return
    gpus = [" / ".join(part.strip() for part in line.split(",")) for line in said.splitlines()]
    yield Check(name="gpu", status="good", detail="; ".join(gpus))
    if not _versions(("torch",))[0]:
        return
    usable, _, device = (_ask([sys.executable, "-c", _TORCH_QUESTION]) or "False").partition(" ")
    if usable == "True":
        yield Check(name="torch", status="good", detail=f"torch uses {device}")
    else:
        yield Check(
            name="torch",
            status="bad",
            detail="there is a GPU and torch cannot use it",
            hint="install a build of torch for this driver's CUDA version",
        )


def _ask(command: list[str]) -> str | None:
    """What a program prints; None if it is not there or fails."""
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=QUERY_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _check_port() -> Check:
    """Listen on any free port of the loopback interface and connect to it."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5.0):
                pass
    except OSError as error:
        return Check(
            name="port",
            status="bad",
            detail=f"cannot listen on 127.0.0.1 and connect to it: {error.strerror or error}",
            hint="a firewall or sandbox is in the way: agents reach the server over loopback",
        )
    return Check(name="port", status="good", detail="loopback connections work")


def _places(folder: Path) -> Iterator[tuple[str, Path]]:
    yield "disk", folder
    yield "temporary files", Path(tempfile.gettempdir())


def _check_disk(name: str, folder: Path) -> Check:
    """Free space, and what it takes to have a line safely on disk."""
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            sync_s = time.perf_counter() - began
    except OSError as error:
        return Check(
            name=name,
            status="bad",
            detail=f"cannot write in {str(folder)!r}: {(error.strerror or str(error)).lower()}",
            hint="choose another folder with --out, or set TMPDIR",
        )
    detail = f"{free / 1e9:.1f} GB free in {str(folder)!r}, a sync takes {sync_s * 1e3:.1f} ms"
    if free < MIN_FREE_BYTES:
        return Check(name=name, status="bad", detail=detail, hint="free some space, at least 1 GB")
    if sync_s > SLOW_SYNC_S:
        hint = "slow, and harmless to timing: journals are synced beside the event loop"
        return Check(name=name, status="note", detail=detail, hint=hint)
    return Check(name=name, status="good", detail=detail)


def _check_clock() -> Check:
    clock = time.get_clock_info("monotonic")
    detail = f"{os.cpu_count()} processors; monotonic clock to {clock.resolution * 1e9:.0f} ns"
    if not clock.monotonic or clock.resolution > 1e-4:
        hint = "latency needs a monotonic clock of at least 0.1 ms"
        return Check(name="clock", status="bad", detail=detail, hint=hint)
    if (os.cpu_count() or 1) < 2:
        hint = "server, decoder and agent share it: expect late releases in realtime"
        return Check(name="clock", status="note", detail=detail, hint=hint)
    return Check(name="clock", status="good", detail=detail)
