"""Questions to the agents' registry under the interpreter of an agent's own environment."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

from streamsim.errors import UsageError

_ABSENT = re.compile(r"No module named '?streamsim_(?:agents|protocol)\b")
_OURS = "streamsim agent: "


class RegistryRefused(UsageError):
    """The registry answered with an error; the text is the last line that it said."""


class RegistryEnded(RegistryRefused):
    """The interpreter ended without an answer of the registry's; the text says how."""


def ask_registry(python: str | None, arguments: Sequence[str], *, timeout_s: float | None = None) -> str:
    """What ``python -m streamsim_agents.registry ARGUMENTS`` prints; None is our own interpreter.

    ``UsageError`` if the interpreter cannot be run, lacks streamsim, or says nothing for ``timeout_s``
    seconds (None: as long as it takes); ``RegistryRefused`` if the registry says no, ``RegistryEnded``
    if it cannot say anything.
    """
    interpreter = python or sys.executable
    command = [interpreter, "-m", "streamsim_agents.registry", *arguments]
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise UsageError(
            f"cannot run {interpreter!r}: {error.strerror}; give an interpreter to --agent-python"
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{interpreter!r} did not look its agents up within {timeout_s:g} s") from None
    if result.returncode == 0:
        return result.stdout
    last = (result.stderr.strip().splitlines() or [""])[-1]
    if last.startswith(_OURS):
        raise RegistryRefused(last.removeprefix(_OURS))
    if _ABSENT.search(last):
        raise UsageError(f"streamsim is not installed under {interpreter!r}: pip install streamsim there")
    code = result.returncode
    how = f"exit code {code}" if code > 0 else f"signal {-code}"
    raise RegistryEnded(f"it ended with {how}; the last it said was {last!r}")
