"""Prompt texts: what they may hold, and what comes out of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsim.episodes.episode import CAUSES
from streamsim.errors import UsageError
from streamsim.prompts import KINDS, PROBES, SHIPPED, Prompts, format_seconds, load_prompts, parse_prompts

SMALLEST = {
    "task": {"any": "Q {stem}\n{options}"},
    "status": {"any": "S {stem}"},
    "cause": {"any": "C {stem}"},
}


def changed(section: str, **texts: object) -> dict[str, object]:
    return {**SMALLEST, section: {**SMALLEST.get(section, {}), **texts}}


def test_our_texts_ask_with_the_question_and_its_options() -> None:
    text = load_prompts().render("task", kind="choice", stem="Where is the cup?", options=("Here", "There"))
    assert "Where is the cup?\n\n(A) Here\n(B) There\n" in text
    assert not re.search(r"\{[a-z_]+\}", text)


def test_our_texts_serve_every_probe_and_kind() -> None:
    prompts = load_prompts()
    for probe in PROBES:
        for kind in KINDS:
            assert "Where is it?" in prompts.render(probe, kind=kind, stem="Where is it?", options=("a", "b"))


def test_our_status_text_offers_the_four_choices_in_the_benchmarks_order() -> None:
    text = load_prompts().render("status", kind="choice", stem="Where is it?")
    lines = [line for line in text.splitlines() if re.match(r"\([A-Z]\) ", line)]
    assert [line[1] for line in lines] == list("ABCD")
    for line, word in zip(
        lines, ("plain sight", "leaves only one", "not come into sight", "more than one"), strict=True
    ):
        assert word in line


def test_our_cause_text_offers_the_causes_in_the_benchmarks_order() -> None:
    text = load_prompts().render("cause", kind="choice", stem="Where is it?")
    lines = [line for line in text.splitlines() if re.match(r"\([A-Z]\) ", line)]
    words = {
        "missing_observation": "never",
        "partial_observation": "in part",
        "low_visual_quality": "blurred",
        "ambiguous_evidence": "different answers",
        "ambiguous_attribute": "property",
        "multiple_candidates": "more than one",
    }
    assert [line[1] for line in lines] == list("ABCDEF")
    for line, cause in zip(lines, CAUSES, strict=True):
        assert words[cause] in line
    assert "comma" in text


def test_status_and_cause_never_show_the_options() -> None:
    prompts = load_prompts()
    for probe in ("status", "cause"):
        assert "Zanzibar" not in prompts.render(
            probe, kind="choice", stem="Where?", options=("Zanzibar", "Rome")
        )


def test_a_text_is_used_to_the_letter() -> None:
    prompts = parse_prompts(changed("task", choice="  {stem}|{options}|\n"))
    assert prompts.render("task", kind="choice", stem="Q", options=("x", "y")) == "  Q|(A) x\n(B) y|\n"
    assert prompts.render("task", kind="open", stem="Q") == "Q Q\n"


def test_a_prefix_stands_before_every_text_of_its_probe() -> None:
    table = {
        **changed("task", prefix="One letter. "),
        "cause": {"prefix": "Day one, {stem}: ", "any": "why?"},
    }
    prompts = parse_prompts(table)
    assert prompts.render("task", kind="choice", stem="Q", options=("x",)) == "One letter. Q Q\n(A) x"
    assert prompts.render("status", kind="choice", stem="Q") == "S Q"
    assert prompts.render("cause", kind="choice", stem="Q") == "Day one, Q: why?"


def test_times_are_written_in_seconds() -> None:
    prompts = parse_prompts(changed("status", any="{stem} [{frame_stamps}] {interval}"))
    stamps = (0, 1_000_000_000, 17_050_000_000)
    assert (
        prompts.render("status", kind="choice", stem="Q", frame_stamps=stamps)
        == "Q [0 s, 1 s, 17.05 s] 0 s to 17.05 s"
    )
    assert prompts.render("status", kind="choice", stem="Q") == "Q [] "
    assert (
        prompts.render(
            "status", kind="choice", stem="Q", frame_stamps=stamps, interval=(2 * 10**9, 5 * 10**9)
        )
        == "Q [0 s, 1 s, 17.05 s] 2 s to 5 s"
    )


@pytest.mark.parametrize(
    ("media_ns", "text"),
    [
        (0, "0 s"),
        (33_366_667, "0.033 s"),
        (999_999_999, "1 s"),
        (10_000_000_000, "10 s"),
        (14_813_500_000_000, "14813.5 s"),
    ],
)
def test_seconds_have_no_idle_zeros(media_ns: int, text: str) -> None:
    assert format_seconds(media_ns) == text


def test_day_and_session_come_from_a_trajectory() -> None:
    table = changed("task", any="{day}/{session}: {stem}{options}")
    prompts = parse_prompts(table, trajectory=True)
    assert prompts.render("task", kind="open", stem="Q", day="DAY1", session="evening") == "DAY1/evening: Q"
    with pytest.raises(UsageError, match=r"prompt task\.open uses \{session\}, which this dataset has not"):
        prompts.render("task", kind="open", stem="Q", day="DAY1")
    with pytest.raises(UsageError, match=r"task\.any: \{day\} needs a dataset of trajectories"):
        parse_prompts(table)


def test_the_form_of_an_option_can_be_set() -> None:
    prompts = parse_prompts({**SMALLEST, "format": {"option": "{letter}. {text}"}})
    assert prompts.render("task", kind="choice", stem="Q", options=("x", "y")) == "Q Q\nA. x\nB. y"


def test_other_braces_are_left_alone() -> None:
    prompts = parse_prompts(
        changed("task", choice='{stem}{options} Reply {"answer": "B"} or {} or {A} or {{stem}}.')
    )
    assert (
        prompts.render("task", kind="choice", stem="Q", options=("x",))
        == 'Q(A) x Reply {"answer": "B"} or {} or {A} or {stem}.'
    )


BRACES = st.text(alphabet="{}stemopian_ ", max_size=40)


@given(BRACES, BRACES)
def test_braces_in_a_question_are_no_placeholders(stem: str, option: str) -> None:
    prompts = parse_prompts(SMALLEST)
    text = prompts.render("task", kind="choice", stem=stem, options=(option, "{stem}"))
    assert text == f"Q {stem}\n(A) {option}\n(B) {{stem}}"


def test_the_digest_is_of_the_texts_alone(tmp_path: Path) -> None:
    copy = tmp_path / "mine.toml"
    copy.write_text("# mine\n" + SHIPPED.read_text(encoding="utf-8"), encoding="utf-8")
    assert load_prompts(copy) == load_prompts(None)
    digests = {
        parse_prompts(table).digest
        for table in (
            SMALLEST,
            changed("task", prefix="x"),
            changed("cause", open="{stem}"),
            {**SMALLEST, "format": {"option": "{letter}) {text}"}},
        )
    }
    assert len(digests) == 4
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "section [task] is missing: a file of prompts needs [task], [status], [cause]"),
        ({key: SMALLEST[key] for key in ("task", "status")}, "section [cause] is missing"),
        ({**SMALLEST, "tusk": {}}, "unknown section [tusk]: expected [format] and [task], [status], [cause]"),
        ({**SMALLEST, "task": "text"}, "task: expected a section [task], got 'text'"),
        (changed("task", choise="{stem}"), "[task] has no key 'choise': expected prefix, any, choice, open"),
        (changed("task", choice=3), "task.choice: expected a text, got 3"),
        (
            {**SMALLEST, "task": {"choice": "{stem} {options}"}},
            "[task] has no text for queries of kind 'open': add 'open' or 'any'",
        ),
        (
            changed("task", choice="{stem} {options} {question}"),
            "task.choice: unknown placeholder {question}: expected one of {stem}, {options}, {frame_stamps}, "
            "{interval}, {day}, {session}, or {{question}} for the word in braces",
        ),
        (changed("task", prefix="{stems}"), "task.prefix: unknown placeholder {stems}"),
        (changed("task", choice="{options}"), "task.choice: expected {stem}, the question"),
        (changed("task", choice="{stem}"), "task.choice: expected {options} in the text of a choice"),
        (changed("task", any="{stem}"), "task.any: expected {options} in the text of a choice"),
        (changed("status", any="{stem} {options}"), "status.any: a status prompt never shows the options"),
        (changed("cause", prefix="{options}"), "cause.prefix: a cause prompt never shows the options"),
        (
            {**SMALLEST, "format": {"option": "{text}"}},
            "format.option: expected {letter} and {text} once each",
        ),
        ({**SMALLEST, "format": {"line": "{text}"}}, "[format] has no key 'line': expected option"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(table: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_prompts(table)
    assert message in str(caught.value)


def test_a_file_that_cannot_be_read_says_which(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    with pytest.raises(UsageError, match=r"cannot read prompts '.*p\.toml': no such file or directory"):
        load_prompts(path)
    path.write_text("[task]\nany = text\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"prompts '.*p\.toml' are not TOML: .*line 2"):
        load_prompts(path)
    path.write_bytes(b"task = '\xff'")
    with pytest.raises(UsageError, match=r"prompts '.*p\.toml' are not TOML"):
        load_prompts(path)
    path.write_text("[status]\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"prompts '.*p\.toml': section \[task\] is missing"):
        load_prompts(path)


def test_prompts_are_compared_by_content() -> None:
    assert isinstance(load_prompts(), Prompts)
    assert load_prompts() == load_prompts()
