"""Answers that no letter could be read from: how many, what such a text looks like, who would read it.

Works on what ``journals`` found; knows no files and no answer key.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from streamsim.reading import CAUSE_COUNT, READERS, STATUS_COUNT, Reader
from streamsim.scoring.journals import SessionAnswers, UnreadText
from streamsim.scoring.latency import PROBES
from streamsim_protocol.messages import Probe

LOOSE_READER = READERS["storm-evaluator"]
"""The reader that finds letters where the strict one finds none."""
EXCERPT_CHARS = 60


def unreadable_notices(sessions: Sequence[SessionAnswers], reader: str) -> list[str]:
    """Counts per probe and one example; then what the looser reader would have read, if any of it.

    ``reader`` names the one that found no letters. Empty if it read all.
    """
    unread = [text for session in sessions for text in session.unread]
    if not unread:
        return []
    read = Counter[Probe]()
    for session in sessions:
        read.update(session.read)
    missed = Counter(text.probe for text in unread)
    counts = ", ".join(f"{missed[probe]} of {read[probe]} {probe}" for probe in PROBES if missed[probe])
    said = next((text for text in unread if text.text.strip()), None)
    example = "all of them empty" if said is None else f"{said.id}, {said.probe}: {excerpt(said.text)}"
    notices = [f"unreadable: {counts} answers count as none, since no letter could be read; {example}"]
    loosely = Counter(text.probe for text in unread if reads(LOOSE_READER, text))
    if loosely and reader != LOOSE_READER.name:
        found = ", ".join(f"{loosely[probe]} {probe}" for probe in PROBES if loosely[probe])
        notices.append(
            f"`streamsim score --reader {LOOSE_READER.name}` reads more loosely: it finds a letter in "
            f"{loosely.total()} of them ({found})"
        )
    return notices


def reads(reader: Reader, unread: UnreadText) -> bool:
    """Whether ``reader`` finds an answer in a text that another did not read."""
    if unread.probe == "cause":
        return bool(reader.causes(unread.text, CAUSE_COUNT))
    return bool(reader.choice(unread.text, unread.option_count if unread.probe == "task" else STATUS_COUNT))


def excerpt(text: str) -> str:
    """The beginning of ``text`` in quotes, 60 characters at most, none that a terminal would obey."""
    said = text.strip()
    escaped = [repr(character)[1:-1] for character in said[: EXCERPT_CHARS + 1]]
    fitting = bisect(list(accumulate(len(part) for part in escaped)), EXCERPT_CHARS)
    return f"'{''.join(escaped[:fitting])}'" + ("…" if fitting < len(said) else "")
