"""One line for what was raised, from tracebacks as Python itself prints them."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable

import pytest

from streamsim.raised import MAX_SHOWN_CHARS, describe_raised

CUDA = (
    "CUDA error: out of memory\n"
    "CUDA kernel errors might be asynchronously reported at some other API call.\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
HERE = r" \(test_raised\.py:\d+\)"


def many_lines() -> None:
    raise RuntimeError(CUDA)


def caused() -> None:
    try:
        many_lines()
    except RuntimeError as error:
        raise ValueError("no picture was kept\nsee above") from error


def meanwhile() -> None:
    try:
        many_lines()
    except RuntimeError:
        dict[str, int]()["tail"]


def group() -> None:
    errors: list[Exception] = []
    for fail in (caused, many_lines):
        try:
            fail()
        except (ValueError, RuntimeError) as error:
            errors.append(error)
    raise ExceptionGroup("unhandled errors in a TaskGroup", errors)


def group_of_groups() -> None:
    try:
        group()
    except ExceptionGroup as error:
        raise ExceptionGroup("outer", [error, KeyError("second")]) from None


def behind_a_group() -> None:
    try:
        group()
    except ExceptionGroup as error:
        raise OSError("disk full\nreally") from error


def group_behind_another() -> None:
    try:
        many_lines()
    except RuntimeError:
        group()


def syntax() -> None:
    compile("ok = 1\ndef (:\n", "/somewhere/prompts.py", "exec")


def noted() -> None:
    error = TypeError("expected 3 channels, got 4")
    error.add_note("while looking at frame 7\nOSError: no, a note")
    raise error


def holds_a_traceback() -> None:
    """As data loaders and pools of processes report what happened in a worker."""
    inner = 'Original Traceback (most recent call last):\n  File "worker.py", line 3, in work\n    x()\n'
    raise RuntimeError(f"caught ValueError in worker 0.\n{inner}ValueError: inner\n")


def is_a_traceback() -> None:
    raise RuntimeError(
        'Traceback (most recent call last):\n  File "w.py", line 3, in work\nValueError: inner'
    )


def begins_with_empty_lines() -> None:
    raise RuntimeError("\n\n  size mismatch for lm_head\n  and more")


def says_nothing() -> None:
    raise NotImplementedError


def long_message() -> None:
    raise KeyError("k" * 1_000)


def deep() -> None:
    deep()


class Refused(Exception):
    """An exception whose name has a module."""


def from_a_module() -> None:
    raise Refused("HTTP 401\n{'error': 'no key'}")


@pytest.mark.parametrize(
    ("fail", "shown"),
    [
        (many_lines, f"RuntimeError: CUDA error: out of memory{HERE}"),
        (caused, f"ValueError: no picture was kept{HERE}"),
        (meanwhile, f"KeyError: 'tail'{HERE}"),
        (
            group,
            rf"ExceptionGroup: unhandled errors in a TaskGroup \(2 sub-exceptions\){HERE}, "
            f"the first: ValueError: no picture was kept{HERE}",
        ),
        (
            group_of_groups,
            rf"ExceptionGroup: outer \(2 sub-exceptions\){HERE}, the first: "
            rf"ExceptionGroup: unhandled errors in a TaskGroup \(2 sub-exceptions\){HERE}.*",
        ),
        (behind_a_group, f"OSError: disk full{HERE}"),
        (group_behind_another, f"ExceptionGroup: unhandled errors in a TaskGroup .*{HERE}, the first: .*"),
        (syntax, r"SyntaxError: invalid syntax \(prompts\.py:2\)"),
        (noted, f"TypeError: expected 3 channels, got 4{HERE}"),
        (holds_a_traceback, rf"RuntimeError: caught ValueError in worker 0\.{HERE}"),
        (is_a_traceback, rf"RuntimeError: Traceback \(most recent call last\): File .*{HERE}"),
        (begins_with_empty_lines, f"RuntimeError: size mismatch for lm_head{HERE}"),
        (says_nothing, f"NotImplementedError{HERE}"),
        (long_message, f"KeyError: '{'k' * (MAX_SHOWN_CHARS - len('KeyError: ?…'))}…{HERE}"),
        (deep, f"RecursionError: maximum recursion depth exceeded{HERE}"),
        (from_a_module, rf"(\w+\.)*Refused: HTTP 401{HERE}"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_line_that_begins_the_last_exception(fail: Callable[[], None], shown: str) -> None:
    text = ""
    try:
        fail()
    except Exception:  # noqa: BLE001 - whatever the case raises
        text = traceback.format_exc()
    found = describe_raised(text)
    assert re.fullmatch(shown, found), found
    assert describe_raised(text.replace("\n", "\r\n")) == found


def test_place_is_where_it_was_raised() -> None:
    text = ""
    try:
        caused()
    except ValueError:
        text = traceback.format_exc()
    line = caused.__code__.co_firstlineno + 4
    assert describe_raised(text) == f"ValueError: no picture was kept (test_raised.py:{line})"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "no traceback"),
        (" \n\n", "no traceback"),
        ("KeyError: 'tail'\n", "KeyError: 'tail'"),
        ("Error: socket hang up\n    at connect (net.js:3:1)\n", "Error: socket hang up"),
        ("panic: index out of range\n\ngoroutine 1 [running]:\n", "panic: index out of range"),
        (
            '…ce(x)\n  File "C:\\a\\b.py", line 3, in f\n    code\nOSError: disk\nfull\n',
            "OSError: disk (b.py:3)",
        ),
        ("…of a message\nand its end\n", "and its end"),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    x\n…rn y\n'
            '  File "b.py", line 2, in g\n    y\nOSError: torn\n',
            "OSError: torn (b.py:2)",
        ),
        ("Traceback (most recent call last):\n", "Traceback (most recent call last):"),
    ],
)
def test_texts_that_are_no_whole_traceback(text: str, shown: str) -> None:
    assert describe_raised(text) == shown


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("word " * 60, ("word " * 39).rstrip()[: MAX_SHOWN_CHARS - 10]),
        ("http://127.0.0.1:1: " + "x" * 169 + " (5 tries)", "http://127.0.0.1:1: " + "x" * 169 + " (5"),
    ],
)
def test_a_long_message_is_cut_behind_a_word(message: str, shown: str) -> None:
    text = describe_raised(f"E: {message}")
    assert text.endswith("…") and len(text) <= MAX_SHOWN_CHARS
    said = text.removesuffix("…").removeprefix("E: ")
    assert message.startswith(f"{said} ") and said.startswith(shown)
