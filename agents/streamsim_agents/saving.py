"""What an agent saved: a folder that appears whole or not at all, and the digest that tells it again."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from streamsim_agents.agent import Agent

_CHUNK_BYTES = 1 << 20


def save_memory(agent: Agent, folder: Path) -> tuple[str, int]:
    """Let the agent save into ``folder``, which appears by one rename, whole and on disk.

    Returns the digest over names and contents (SHA-256, hex) and the size in bytes. Whatever goes wrong
    is raised, and leaves ``folder`` as it was.
    """
    staging = folder.with_name(f".{folder.name}.writing")
    before = folder.with_name(f".{folder.name}.before")
    shutil.rmtree(staging, ignore_errors=True)
    _restore(before, folder)
    staging.mkdir(parents=True)
    try:
        agent.save(staging)
        digest, size_bytes = folder_digest(staging)
        for path in (*staging.rglob("*"), staging):
            _sync(path)
        if folder.exists():
            folder.rename(before)
        staging.rename(folder)
        _sync(folder.parent)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        _restore(before, folder)
        raise
    shutil.rmtree(before, ignore_errors=True)
    return digest, size_bytes


def _restore(before: Path, folder: Path) -> None:
    """Put back what stood there, unless its successor does."""
    if folder.exists():
        shutil.rmtree(before, ignore_errors=True)
    elif before.exists():
        before.rename(folder)


def folder_digest(folder: Path) -> tuple[str, int]:
    """SHA-256 (hex) over every file's relative name, size and bytes in order of names, and their size."""
    digest = hashlib.sha256()
    size_bytes = 0
    files = {os.fsencode(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    for name, path in sorted(files.items()):
        size = path.stat().st_size
        digest.update(b"%d:%b%d:" % (len(name), name, size))
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
        size_bytes += size
    return digest.hexdigest(), size_bytes


def _sync(path: Path) -> None:
    """Have a file or folder on disk; a file system that cannot sync folders is left to itself."""
    if not path.is_file() and not path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if path.is_file():
            raise
    finally:
        os.close(descriptor)
