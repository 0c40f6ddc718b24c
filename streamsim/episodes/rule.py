"""What makes a query and its answer key legal, whatever benchmark they came from.

Importers refuse rows by these rules, ``check`` finds faults in datasets by the same. Everything is
pure. Fields are named as in `streamsim.episodes.episode`; importers translate them to the names of
their files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from streamsim.episodes.episode import CAUSES, EpisodeQuery, KeyEntry
from streamsim_protocol.messages import VISIBILITY_TOLERANCE_NS

MAX_MEDIA_NS = 2**63 - 1
MAX_ID_BYTES = 200
"""Episode ids name files of a run folder."""
MAX_OPTIONS = 26
"""Options are named by letters."""
MAX_TEXT_BYTES = 256 << 10
"""Question and options together: a probe's message, which carries them twice, has to stay under 1 MiB."""


class Fault(NamedTuple):
    """A field and what is wrong with it."""

    field: str
    text: str


def in_seconds(media_ns: int) -> str:
    """Nanoseconds as seconds for people, without loss: ``17.05``."""
    return f"{media_ns / 1e9:.9f}".rstrip("0").rstrip(".")


def episode_id_faults(episode_id: str) -> Iterator[Fault]:
    """An episode id must do as part of a file name."""
    if not episode_id or episode_id.startswith("."):
        yield Fault("id", f"expected an id that can name a file, got {episode_id!r}")
    elif any(char in "/\\" or not char.isprintable() for char in episode_id):
        yield Fault("id", f"expected an id without slashes and control characters, got {episode_id!r}")
    elif len(episode_id.encode("utf-8", "replace")) > MAX_ID_BYTES:
        yield Fault("id", f"expected at most {MAX_ID_BYTES} bytes, got {episode_id[:40]!r}…")


def query_faults(query: EpisodeQuery) -> Iterator[Fault]:
    """Faults that show in the public half alone."""
    if not query.id:
        yield Fault("id", "expected an id, got an empty text")
    if not 0 <= query.media_ns <= MAX_MEDIA_NS:
        yield Fault("media_ns", f"expected a time from 0 s on, got {in_seconds(query.media_ns)} s")
    if not query.stem.strip() and query.kind != "heartbeat":
        yield Fault("stem", "expected a question, got an empty text")
    if query.kind == "choice" and len(query.options) < 2:
        yield Fault("options", f"expected at least two options for a choice, got {len(query.options)}")
    if query.kind != "choice" and query.options:
        yield Fault("options", f"expected no options for kind {query.kind!r}, got {len(query.options)}")
    if len(query.options) > MAX_OPTIONS:
        yield Fault("options", f"expected at most {MAX_OPTIONS} options, got {len(query.options)}")
    texts = (query.stem, *query.options)
    size_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if size_bytes > MAX_TEXT_BYTES:
        text = f"expected at most {MAX_TEXT_BYTES} bytes of question and options, got {size_bytes}"
        yield Fault("stem", text)
    if any(_has_control_character(text) for text in texts):
        yield Fault("stem", "expected question and options without control characters, got some")
    bare = [option.strip() for option in query.options]
    if "" in bare:
        yield Fault("options", f"expected a text in every option, got {list(query.options)!r}")
    twice = next((option for place, option in enumerate(bare) if option in bare[:place]), None)
    if twice:
        yield Fault("options", f"expected distinct options, got {twice!r} twice")


def _has_control_character(text: str) -> bool:
    return any((char < " " and char not in "\n\t\r") or char == "\x7f" for char in text)


def end_faults(query: EpisodeQuery, end_ns: int) -> Iterator[Fault]:
    """A query must be due within its video, which ends at ``end_ns``."""
    if query.media_ns > end_ns + VISIBILITY_TOLERANCE_NS:
        yield Fault(
            "media_ns",
            f"expected a time within the video, which ends at {in_seconds(end_ns)} s; "
            f"due at {in_seconds(query.media_ns)} s",
        )


def key_faults(query: EpisodeQuery, entry: KeyEntry) -> Iterator[Fault]:
    """Faults of the hidden half, given its query."""
    yield from _answer_faults(query, entry)
    yield from status_faults(entry)
    if entry.intensity is not None and not 1 <= entry.intensity <= 10:
        yield Fault("intensity", f"expected an integer from 1 to 10, got {entry.intensity}")
    for start_ns, end_ns in entry.spans_ns:
        if not 0 <= start_ns <= end_ns <= query.media_ns + VISIBILITY_TOLERANCE_NS:
            yield Fault(
                "spans_ns",
                "expected 0 <= start <= end <= query time, got "
                f"[{in_seconds(start_ns)}, {in_seconds(end_ns)}] s for a query at "
                f"{in_seconds(query.media_ns)} s",
            )


def status_faults(entry: KeyEntry) -> Iterator[Fault]:
    """Known goes without causes, uncertain with at least one; each of the six at most once."""
    for cause in entry.causes:
        if cause not in CAUSES:
            yield Fault("causes", f"expected causes among {', '.join(CAUSES)}, got {cause!r}")
    if len(set(entry.causes)) != len(entry.causes):
        yield Fault("causes", f"expected each cause once, got {list(entry.causes)!r}")
    if entry.status == "known" and entry.causes:
        yield Fault("causes", f"expected none for a known question, got {list(entry.causes)!r}")
    if entry.status == "uncertain" and not entry.causes:
        yield Fault("causes", "expected at least one for an uncertain question, got none")
    if entry.status is None and entry.causes:
        yield Fault("status", "expected 'uncertain' where causes are given, got no status")


def _answer_faults(query: EpisodeQuery, entry: KeyEntry) -> Iterator[Fault]:
    count = len(query.options)
    if query.kind == "choice":
        if entry.answer_index is None:
            yield Fault("answer_index", "expected an answer for a choice, got none")
        elif not 0 <= entry.answer_index < count:
            yield Fault(
                "answer_index",
                f"expected an index below {count}, the number of options, got {entry.answer_index}",
            )
    elif entry.answer_index is not None:
        yield Fault("answer_index", f"expected none for kind {query.kind!r}, got {entry.answer_index}")
    if sorted(entry.permutation) != list(range(count)):
        yield Fault(
            "permutation",
            f"expected each index from 0 to below {count} once, got {list(entry.permutation)!r}",
        )
