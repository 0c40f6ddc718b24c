"""The registry under another interpreter: a real environment that has nothing installed."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from streamsim.errors import UsageError
from streamsim.launch.doctor import list_agents
from streamsim.launch.interpreter import RegistryRefused, ask_registry
from streamsim.launch.planning import check_agent


@pytest.mark.slow
def test_an_environment_without_streamsim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    text = f"streamsim is not installed under {python!r}: pip install streamsim there"
    for ask in (lambda: check_agent("null", [], python), lambda: list_agents(python)):
        with pytest.raises(UsageError) as caught:
            ask()
        assert str(caught.value) == text


@pytest.mark.slow
def test_an_agent_whose_own_import_fails_is_no_missing_streamsim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needy.py").write_text("import streamsim_protocol.no_such_room\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(
        RegistryRefused, match=r"importing 'needy' failed: No module named 'streamsim_protocol"
    ):
        ask_registry(sys.executable, ["--check", "needy:Mine"])
