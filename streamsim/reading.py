"""Letters out of free text: which option an answer chooses, and which causes it names.

Two readers, by name. ``strict`` takes a text that states its choice unambiguously and calls all else
invalid; ``storm-evaluator`` does what STORM-Bench's public evaluator does, quirks included, for
comparison with published numbers. A reading is a string of capital letters, empty where the text is
invalid. This module knows no sessions and no files, and it never sees the options' texts.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from string import ascii_uppercase
from typing import Literal

STATUS_COUNT = 4
"""Choices of a status probe: A seen directly, B follows by reasoning, C not observed, D ambiguous."""
CAUSE_COUNT = 6
"""Choices of a cause probe, in the order of ``episode.CAUSES``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A named way of reading letters.

    ``choice(text, count)`` is one letter of the first ``count``, ``causes(text, count)`` one or more
    of them in alphabetical order; both are "" where the text is invalid.
    """

    name: str
    choice: Callable[[str, int], str]
    causes: Callable[[str, int], str]


def status_of(letter: str) -> Literal["known", "uncertain"]:
    """The status that a valid status letter stands for: A and B known, C and D uncertain.

    ``ValueError`` for anything else: an invalid reading has no status.
    """
    if letter in ("A", "B"):
        return "known"
    if letter in ("C", "D"):
        return "uncertain"
    raise ValueError(f"expected a status letter A to D, got {letter!r}")


# ------------------------------------------------------------------------------- the strict reader


def read_choice(text: str, count: int) -> str:
    """The one option that ``text`` states; "" when it states none, or leaves more than one possible.

    Thinking is left out first (an unclosed block makes the text invalid); then the content of
    ``<answer>`` counts where there is one, then the answer's field of a JSON object, else the text.
    A letter is stated on a line of its own, at the head of a line with a mark behind it ("B.", "B) …",
    "B: …"), in brackets, or after words such as "the answer is". "A person …", "I see …" and
    "B the cup" state nothing. Any other letter weighed beside it ("A or B", "B, not A", "B. C is
    wrong") makes the text invalid.
    """
    allowed = _allowed(count)
    letters = _stated(text, _CHOICE_KEYS, allowed, several=False)
    return "".join(letters) if len(letters) == 1 and letters <= allowed else ""


def read_causes(text: str, count: int = CAUSE_COUNT) -> str:
    """All causes that ``text`` states, in alphabetical order; "" when invalid.

    Prepared as in ``read_choice``; lists count too: "A, C", "A and C", "A/C", "A C", ``["A", "C"]``,
    one item a line. Letters that run together count only as a line of capitals in ascending order:
    "ACD" is a list, "BAD" and "CA" are not. "A or C", "A, not C" and any letter out of range make the
    text invalid.
    """
    allowed = _allowed(count)
    letters = _stated(text, _CAUSE_KEYS, allowed, several=True)
    return "".join(sorted(letters)) if letters <= allowed else ""


def _allowed(count: int) -> set[str]:
    if not 1 <= count <= len(ascii_uppercase):
        raise ValueError(f"expected 1 to 26 options, got {count}")
    return set(ascii_uppercase[:count])


def _stated(text: str, keys: tuple[str, ...], allowed: set[str], *, several: bool) -> set[str]:
    """Every letter that the answer states or weighs; empty when it is invalid."""
    parts = _answer_parts(text, keys)
    found: set[str] = set()
    for part in parts:
        if len(_LONE.findall(part)) > _MOST_LETTERS:
            return set()
        stated: set[str] = set()
        weighed: set[str] = set()
        for line in part.splitlines():
            for letter, role in _letters(_spell_out(line, several=several), several=several):
                if role == "rejected":
                    return set()
                (stated if role == "stated" else weighed).add(letter)
        weighed &= allowed
        if not stated or (several and not weighed <= stated):
            return set()
        found |= stated | weighed
    return found


# -------------------------------------------------------------------- what of a text is the answer

_THINKING_TAG = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.I)
_SPECIAL_TOKEN = re.compile(r"<\|[^<>|]*\|>|</?s>", re.I)
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.S | re.I)
_ANSWER_TAG = re.compile(r"</?answer>", re.I)
_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\(?:text|mathrm|textbf)\s*\{)?\s*([A-Za-z, ]+?)\s*\}{1,2}")
_WIDE = re.compile(r"[(\[] {1,3}([A-Za-z]) {1,3}[)\]]")
_FENCE = re.compile(r"\A```[a-z]*\s*(.*?)\s*```\Z", re.S | re.I)
_EMPHASIS = re.compile(r"[*_`~$]+(?=\S)|(?<=\S)[*_`~$]+")
_OBJECT = re.compile(r"\{\s*+\"")
_MOST_OBJECTS = 100
_CHOICE_KEYS = ("answer", "final_answer", "choice", "option", "letter", "selection", "status")
_CAUSE_KEYS = (*_CHOICE_KEYS, "answers", "choices", "options", "letters", "cause", "causes")


def _answer_parts(text: str, keys: tuple[str, ...]) -> list[str]:
    """The texts that must hold the answer, markup removed; none where thinking was not closed."""
    said = _without_thinking(_SPECIAL_TOKEN.sub("", unicodedata.normalize("NFKC", text)))
    if said is None:
        return []
    answers = _ANSWER.findall(said)
    body = "\n".join(answers) if answers else _ANSWER_TAG.sub("", said)
    parts = _json_answers(_FENCE.sub(r"\1", body.strip()), keys)
    return [_EMPHASIS.sub("", _BOXED.sub(r"(\1)", _WIDE.sub(r"(\1)", part))) for part in parts]


def _without_thinking(text: str) -> str | None:
    """``text`` less its thinking blocks; None when the last one was not closed.

    An end without a start closes a block that the prompt's template opened: all before it was thought.
    """
    kept: list[str] = []
    at, thinking = 0, False
    for tag in _THINKING_TAG.finditer(text):
        closes = bool(tag[1])
        if closes and not thinking:
            kept.clear()
        elif not closes and not thinking:
            kept.append(text[at : tag.start()])
        at, thinking = tag.end(), not closes
    return None if thinking else "".join([*kept, text[at:]])


def _json_answers(body: str, keys: tuple[str, ...]) -> list[str]:
    """The answers in the JSON that ``body`` is or contains; ``[body]`` where it has no such JSON."""
    try:
        return _strings(json.loads(body), keys)
    except (ValueError, RecursionError):
        objects = [value for value in _json_objects(body) if _named(value, keys)]
        return [part for value in objects for part in _strings(value, keys)] or [body]


def _json_objects(body: str) -> Iterator[dict[str, object]]:
    """The JSON objects that stand in ``body``, outermost only; gives up where there is little but braces."""
    decoder = json.JSONDecoder()
    end = 0
    for start in islice(_OBJECT.finditer(body), _MOST_OBJECTS):
        if start.start() < end:
            continue
        try:
            value, end = decoder.raw_decode(body, start.start())
        except (ValueError, RecursionError):
            continue
        yield value


def _named(value: dict[str, object], keys: tuple[str, ...]) -> list[object]:
    return [item for key, item in value.items() if key.lower() in keys]


def _strings(value: object, keys: tuple[str, ...]) -> list[str]:
    """The strings of an answer: of a list all, of an object those under ``keys`` or its only one.

    Numbers, null and objects without an answer give an empty string, which is no valid answer.
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        return [part for item in value for part in _strings(item, keys)]
    if isinstance(value, dict):
        named = _named(value, keys) or (list(value.values()) if len(value) == 1 else [])
        return _strings(named, keys)
    return [""]


# ------------------------------------------------------------- the letters of a line and their role

_Role = Literal["stated", "weighed", "rejected"]
_NEAR = 80
"""As many characters before a letter, and behind it, say what role it has."""
_MOST_LETTERS = 500
"""A text with more lone letters than this is no answer; it bounds what a flood costs."""

_OPEN, _CLOSE = r"[(\[{\"'“‘«]", r"[)\]}\"'”’»]"
_NOUN = r"(?:option|choice|answer|letter)"
_SEPARATOR = r"(?:\s*(?:,\s*and\b|[,;/&+、和]|\band\b)\s*)"
_LONE = re.compile(
    rf"(?<![\w'’.\-])(?P<open>{_OPEN}{{0,3}})(?P<letter>[A-Z])(?P<close>{_CLOSE}{{0,3}})"
    r"(?:(?<=[)\]])|(?![\w'’]|-\w))",
    re.A,
)
"""A capital that touches no other letter, digit, hyphen or apostrophe, with the brackets around it."""

_AT_HEAD = re.compile(rf"^\s*(?:(?:[-*•>#]+|\d+[.)])\s+)?(?:{_NOUN}\s+)?$", re.I)
_SAID = re.compile(
    r"(?:\b(?:answers?|ans\.?|response|output|selected|choices?|options?|selection|causes?|reasons?|letters?(?=\s*(?:is|are|:)))(?:\s+that\s+apply)?"
    r"|\b(?:choose|select|pick|go\s+with|say|think|guess|it\s+is|it['’]s)|答案|选项|选择|选)"
    r"(?:\s*(?:\b(?:is|are|was|(?:would|should|must)\s+be)\b|是|为|[:=→–—-]|[-=]>))*"
    r"(?:\s*\b(?:probably|(?:most\s+)?likely|clearly|definitely|therefore|thus))?"
    rf"(?:\s+{_NOUN}s?)?\s*:?\s*$",
    re.I,
)
_REJECTED_BEFORE = re.compile(
    r"(?:\b(?:not|nor|neither|except|than|without|(?:cannot|can['’]t|won['’]t|couldn['’]t)\s+be)|n['’]t)"
    rf"\s+(?:the\s+)?(?:{_NOUN}\s+)?$"
    r"|(?:n['’]t|\bnot)\s+(?:think|believe|mean|say)\b[^.!?]*$",
    re.I,
)
_REJECTED_BEHIND = re.compile(
    r"\s+(?:(?:is|are|was|can|does|do)(?:n['’]t|\s*not)\b|(?:is|are|was)\s+(?:wrong|incorrect|false)\b)"
)
_CONFIRMED = re.compile(r"\s+is\s+(?:the\s+)?(?:correct|right|best|most\s+likely|answer)\b")
_JOINED_BEFORE = re.compile(
    rf"(?:\b(?:or|rather|perhaps|either|both|between|{_NOUN})\s+|{_SEPARATOR})$", re.I
)
_JOINED_BEHIND = re.compile(r"\s*[/&+,、和]|\s+(?:or|and|is|was|are|but)\b|[.:]\s+\S")
_ALTERNATIVE = re.compile(r",?\s+or\b")
_ENDED = re.compile(
    r"[.,;:!。]?\s*$|\.(?=\s|[A-Z][a-z])|:|[,;、。](?=\s)|\s+[-–—]\s|\s+[(\[]"
    r"|\s+(?:because|since|as|for|given|which|where|(?:both\s+|all\s+)?appl(?:y|ies))\b"
)
_ITEM_BEFORE = re.compile(r"(?:[,;|.]|\band)\s*$")
_ITEM_BEHIND = re.compile(r"[.:](?:\s|$)")
_WORD_BEHIND = re.compile(r"\s+[a-z]")


def _letters(line: str, *, several: bool) -> Iterator[tuple[str, _Role]]:
    """The letters that matter in ``line``, with their role; with ``several``, lists state all theirs."""
    listed_to = 0  # where the last stated letter ended
    for match in _LONE.finditer(line):
        letter, start, end = match["letter"], match.start(), match.end()
        before, behind = line[max(0, start - _NEAR) : start], line[end : end + _NEAR]
        bracketed = bool(match["open"] and match["close"])
        closed = bracketed or match["close"][:1] in (")", "]")
        ended, joined = bool(_ENDED.match(behind)), bool(_JOINED_BEHIND.match(behind))
        if letter in "AI" and not closed and not ended and not joined and _WORD_BEHIND.match(behind):
            continue  # an article or a pronoun
        doubted = several and _ALTERNATIVE.match(behind)
        if doubted or _REJECTED_BEFORE.search(before) or _REJECTED_BEHIND.match(behind):
            yield letter, "rejected"
        elif _CONFIRMED.match(behind) or (
            (closed or ended or (several and re.match(_SEPARATOR, behind)))
            and (
                bracketed
                or (start <= _NEAR and _AT_HEAD.search(before))
                or _SAID.search(before)
                or (several and listed_to and re.fullmatch(_SEPARATOR, line[listed_to:start]))
                or (several and _ITEM_BEFORE.search(before) and (closed or _ITEM_BEHIND.match(behind)))
            )
        ):
            listed_to = end
            yield letter, "stated"
        elif joined or _JOINED_BEFORE.search(before):
            yield letter, "weighed"


_ONE = rf"{_OPEN}{{0,3}}[A-Za-z]{_CLOSE}{{0,3}}\.?"
_ONLY_LETTERS = re.compile(rf"\s*{_ONE}(?:(?:{_SEPARATOR}|\s+or\s+|\s+){_ONE})*\s*")
_SMALL_AT_HEAD = re.compile(rf"\s*{_OPEN}{{0,3}}[a-z](?=[)\]]|\.(?:\s|$))")
_SMALL_AT_END = re.compile(rf"(?<![\w'’])[a-z](?={_CLOSE}*\.?\s*$)")
_RUN_TOGETHER = re.compile(r"(?<!\w)[A-Z]{2,}(?=\.?\s*$)")


def _spell_out(line: str, *, several: bool) -> str:
    """``line`` with its unmistakable small letters made capitals, and run-together ones set apart."""
    if len(line) <= _NEAR and _ONLY_LETTERS.fullmatch(line):
        return re.sub(r"(?<=[A-Z)\].])\s+(?=[A-Z(\[])", ", ", re.sub(r"\b[a-z]\b", _capital, line))
    line = _SMALL_AT_HEAD.sub(_capital, line, count=1) if _SMALL_AT_HEAD.match(line) else line
    tail = line[-_NEAR:]
    small = _SMALL_AT_END.search(tail)
    if small and _SAID.search(tail[: small.start()].rstrip("([\"'")):
        tail = tail[: small.start()] + small[0].upper() + tail[small.end() :]
    run = _RUN_TOGETHER.search(tail)
    if several and run and list(run[0]) == sorted(set(run[0])):
        before = tail[: run.start()]
        if _SAID.search(before) or (len(line) <= _NEAR and _AT_HEAD.search(before)):
            tail = before + ", ".join(run[0]) + tail[run.end() :]
    return line[:-_NEAR] + tail


def _capital(match: re.Match[str]) -> str:
    return match[0].upper()


# --------------------------------------------------------------------- the public evaluator's reader


def read_choice_as_storm(text: str, count: int) -> str:
    """One letter as STORM-Bench's public evaluator finds it; "" when it finds none.

    In order, capital or small: the first lone letter inside ``<answer>``; the letter after "answer"
    or "choice", with no word boundary behind it ("Answer: cannot be told" reads C); a leading letter;
    the first lone letter anywhere ("I see a cup" reads A).
    """
    letter = f"([{''.join(sorted(_allowed(count or 4)))}])"
    text = text.strip()
    tags = list(_ANSWER_TAG.finditer(text))
    starts = [tag.end() for tag in tags if not tag[0].startswith("</")]
    ends = [tag.start() for tag in tags if tag[0].startswith("</")]
    inside = text[starts[0] : ends[-1]] if starts and ends else ""
    match = (
        re.search(rf"\b{letter}\b", inside, re.I)
        or re.search(rf"(?:answer|choice|答案|选项)\s*+[:：]?\s*+\(?{letter}", text, re.I)
        or re.match(rf"\(?{letter}\)?(?:\s|$|[.,。，])", text, re.I)
        or re.search(rf"\b{letter}\b", text, re.I)
    )
    return match[1].upper() if match else ""


def read_causes_as_storm(text: str, count: int = CAUSE_COUNT) -> str:
    """Causes as STORM-Bench's public evaluator finds them, in alphabetical order.

    Every letter in range, capital or small, that touches no other letter, inside the first
    ``<answer>`` where there is one: "There is a problem" reads A.
    """
    letter = f"[{''.join(sorted(_allowed(count)))}]"
    start = re.search("<answer>", text, re.I)
    end = re.compile("</answer>", re.I).search(text, start.end()) if start else None
    candidate = text[start.end() : end.start()] if start and end else text
    found = re.findall(rf"(?<![A-Z]){letter}(?![A-Z])", candidate, re.I)
    return "".join(sorted({letter.upper() for letter in found}))


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader(name="strict", choice=read_choice, causes=read_causes),
        Reader(name="storm-evaluator", choice=read_choice_as_storm, causes=read_causes_as_storm),
    )
}
"""By the name that a run is given and records."""
