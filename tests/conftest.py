"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder with real footage, annotation files and worked cases, or a skip that says so."""
    folder = os.environ.get("STREAMSIM_TEST_DATA")
    if not folder:
        pytest.skip("set STREAMSIM_TEST_DATA to the folder of real footage and cases to run this test")
    path = Path(folder)
    if not (path / "data").is_dir():
        pytest.skip(f"no data/ in STREAMSIM_TEST_DATA ({folder!r})")
    return path
