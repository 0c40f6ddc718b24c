"""Server-sent events, cut anywhere: examples after the HTML standard's own."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsim_agents.sse import MAX_EVENT_CHARS, EventDecoder, EventTooLong


def decode(*chunks: bytes) -> list[str]:
    decoder = EventDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", ["YHOO\n+2\n10"]),
        (b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
         ["first event", "second event", " third event"]),
        (b"data\n\ndata\ndata\n\ndata:", ["", "\n"]),
        (b"data:test\n\ndata: test\n\n", ["test", "test"]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", ["a", "b", "c"]),
        (b"event: x\nretry: 10\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b"data: \xe7\xad\x94\xf0\x9f\x91\x8d\n\n", ["答👍"]),
        (b"data: \xff\n\n", ["\ufffd"]),
        (b"data: [DONE]\n\n", ["[DONE]"]),
        (b"data: not ended", []),
        (b"data: not ended\n", []),
        (b"", []),
    ],
)  # fmt: skip
def test_events_are_found(stream: bytes, events: list[str]) -> None:
    assert decode(stream) == events
    assert decode(*(stream[at : at + 1] for at in range(len(stream)))) == events


@pytest.mark.parametrize(
    ("stream", "last"),
    [
        (b"data: a\n\ndata: b", "b"),
        (b"data: a\n\ndata: b\n", "b"),
        (b"data: b\r", "b"),
        (b"data: b\ndata: c", "b\nc"),
        (b"data: a\n\n", None),
        (b"data: a\n\n: hm", None),
        (b"", None),
    ],
)
def test_what_the_stream_ends_within_is_told_apart(stream: bytes, last: str | None) -> None:
    decoder = EventDecoder()
    decoder.feed(stream)
    assert decoder.end() == last
    assert decoder.end() is None


LINES = st.sampled_from(
    ["data: a", "data:b", "data: 答", "data", ": hm", "id: 3", "", "", "", "\u2028data: x"]
)


@given(st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r", "\r\n"]))), st.lists(st.integers(0, 200)))
def test_where_the_bytes_are_cut_does_not_matter(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    stream = "".join(line + end for line, end in lines).encode()
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    assert decode(*(stream[a:b] for a, b in pairwise(edges))) == decode(stream)


def test_an_event_without_end_is_refused() -> None:
    decoder = EventDecoder()
    with pytest.raises(EventTooLong):
        for _ in range(MAX_EVENT_CHARS // 1000 + 1):
            decoder.feed(b"data: " + b"x" * 1000 + b"\n")
