"""What may reach a terminal as it is, and how the rest is shown."""

from __future__ import annotations

import unicodedata

import pytest

from streamsim_protocol.terminal import for_terminal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with 'quotes' and \\ as they are", "plain, with 'quotes' and \\ as they are"),
        ("küche 台所 👩‍🍳 a\u00a0b", "küche 台所 👩‍🍳 a\u00a0b"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("one\r\ntwo\tthree\0", r"one\r\ntwo\tthree\x00"),
        ("\x7f\x85\x9b31m", r"\x7f\x85\x9b31m"),
        ("a\u2028b\u202eexe.4pm", r"a\u2028b\u202eexe.4pm"),
        ("bytes \udcff", r"bytes \udcff"),
    ],
)
def test_controls_are_shown_and_text_is_left_alone(text: str, shown: str) -> None:
    assert for_terminal(text) == shown
    assert for_terminal(shown) == shown


def test_what_is_kept() -> None:
    assert for_terminal("a\nb\tc\x1b", keep="\n\t") == "a\nb\tc\\x1b"


def test_no_control_passes() -> None:
    for code in range(0x110000):
        if unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp"):
            assert for_terminal(chr(code)).isprintable()
