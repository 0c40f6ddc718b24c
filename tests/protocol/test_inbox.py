"""The order in which a worker meets frames and probes, by history and policy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamsim_protocol.inbox import Choice, Inbox, WaitingFrame, WaitingProbe
from streamsim_protocol.messages import FramePolicy, History, Probe, ProbeMessage

SECOND_NS = 10**9


def frame(k: int, media_ns: int | None = None) -> WaitingFrame:
    return WaitingFrame(
        k=k, media_ns=k * SECOND_NS if media_ns is None else media_ns, handle=k, received_ns=0
    )


def probe(order: int, at_s: float, probe: Probe = "task", turn: int | None = None) -> WaitingProbe:
    return WaitingProbe(
        message=ProbeMessage(
            turn=order + 1 if turn is None else turn,
            query=f"q{order + 1}",
            order=order,
            kind="choice",
            probe=probe,
            media_ns=round(at_s * SECOND_NS),
            text="",
            stem="",
            options=(),
        ),
        received_ns=0,
    )


def name(item: WaitingFrame | WaitingProbe) -> str:
    if isinstance(item, WaitingFrame):
        return f"F{item.k}"
    return f"{item.message.probe} {item.message.query}"


def inbox_of(
    *items: WaitingFrame | WaitingProbe, frames: FramePolicy = "all", history: History = "frozen"
) -> Inbox:
    inbox = Inbox(frames, history)
    for item in items:
        inbox.put(item)
    return inbox


def take(inbox: Inbox) -> str | None:
    choice = inbox.take()
    if choice is None:
        return None
    skipped = "".join(f" -F{passed.k}" for passed in choice.skipped)
    return name(choice.item) + skipped


def drain(inbox: Inbox) -> list[str]:
    """All that is taken where every chain closes after its task."""
    taken = []
    while (choice := inbox.take()) is not None:
        taken.append(name(choice.item) + "".join(f" -F{passed.k}" for passed in choice.skipped))
        if isinstance(choice.item, WaitingProbe):
            inbox.close_chain(choice.item.message.query)
    return taken


class TestFrozen:
    def test_goes_by_media_time_a_frame_before_a_query(self) -> None:
        inbox = inbox_of(frame(4), frame(5), probe(0, 5), frame(6), probe(1, 5.5), frame(7))
        assert drain(inbox) == ["F4", "F5", "task q1", "task q2", "F6", "F7"]

    def test_queries_of_one_instant_go_by_their_order(self) -> None:
        assert drain(inbox_of(probe(2, 5), probe(0, 5), probe(1, 5))) == ["task q1", "task q2", "task q3"]

    def test_one_chain_at_a_time_and_nothing_newer_meanwhile(self) -> None:
        inbox = inbox_of(frame(5), probe(0, 5), probe(1, 5), frame(6))
        assert [take(inbox), take(inbox)] == ["F5", "task q1"]
        assert take(inbox) is None, "q2 and F6 wait until the chain of q1 closes"
        inbox.close_chain("q2")
        assert take(inbox) is None, "not that of another query"
        inbox.put(probe(0, 5, "status", turn=9))
        assert [take(inbox), take(inbox)] == ["status q1", None]
        inbox.put(probe(0, 5, "cause", turn=10))
        assert [take(inbox), take(inbox)] == ["cause q1", None]
        inbox.close_chain("q1")
        assert [take(inbox), take(inbox)] == ["task q2", None]
        inbox.close_chain("q2")
        assert [take(inbox), take(inbox)] == ["F6", None]

    def test_what_is_closed_before_it_was_taken_up_holds_nothing(self) -> None:
        inbox = inbox_of(probe(0, 5), frame(6))
        assert inbox.withdraw(1) and not inbox.withdraw(1) and not inbox.withdraw(5)
        inbox.close_chain("q1")
        assert [take(inbox), take(inbox)] == ["F6", None]

    def test_a_frame_within_a_microsecond_is_visible(self) -> None:
        """STORM-Bench's tolerance, at its edge and beyond."""
        at_ns = 5 * SECOND_NS
        visible = inbox_of(frame(0, at_ns + 1_000), probe(0, 5))
        assert drain(visible) == ["F0", "task q1"]
        hidden = inbox_of(frame(0, at_ns + 1_001), probe(0, 5))
        assert drain(hidden) == ["task q1", "F0"]


class TestLive:
    def test_goes_by_arrival(self) -> None:
        inbox = inbox_of(frame(5), probe(0, 5), frame(6), frame(7), history="live")
        assert [take(inbox), take(inbox)] == ["F5", "task q1"]
        inbox.put(probe(0, 5, "status", turn=9))
        inbox.put(probe(1, 7))
        taken = [take(inbox) for _ in range(5)]
        assert taken == ["F6", "F7", "status q1", "task q2", None], "no chain holds anything"


class TestLatest:
    def test_passes_over_to_the_newest_that_has_arrived(self) -> None:
        inbox = inbox_of(frame(1), frame(2), frame(3), frames="latest")
        assert [take(inbox), take(inbox)] == ["F3 -F1 -F2", None]
        inbox.put(frame(4))
        assert take(inbox) == "F4"

    def test_never_past_a_query(self) -> None:
        inbox = inbox_of(frame(3), frame(4), frame(5), probe(0, 5), frame(6), frame(7), frames="latest")
        assert drain(inbox) == ["F5 -F3 -F4", "task q1", "F7 -F6"]

    def test_passes_nothing_over_during_a_chain(self) -> None:
        inbox = inbox_of(probe(0, 5), frame(6), frame(7), frames="latest")
        assert [take(inbox), take(inbox)] == ["task q1", None]
        inbox.close_chain("q1")
        assert take(inbox) == "F7 -F6"

    def test_two_queries_each_with_its_newest_frame(self) -> None:
        inbox = inbox_of(
            frame(3), frame(4), probe(0, 4.5), frame(5), frame(6), probe(1, 6), probe(2, 6), frames="latest"
        )
        assert drain(inbox) == ["F4 -F3", "task q1", "F6 -F5", "task q2", "task q3"]

    def test_live_passes_over_up_to_the_next_arrival_of_a_query(self) -> None:
        inbox = inbox_of(frame(3), frame(4), probe(0, 4), frame(5), frame(6), frames="latest", history="live")
        assert drain(inbox) == ["F4 -F3", "task q1", "F6 -F5"]


@given(
    st.lists(st.integers(0, 6), max_size=6).map(sorted),
    st.lists(st.integers(0, 6), max_size=4).map(sorted),
    st.sampled_from(["all", "latest"]),
    st.data(),
)
def test_frozen_order_against_the_definition(
    frames_s: list[int], queries_s: list[int], policy: FramePolicy, data: st.DataObject
) -> None:
    """Taken while things arrive: each query right after the newest frame visible to it, no frame lost."""
    arriving: list[WaitingFrame | WaitingProbe] = [
        *(frame(k, at * SECOND_NS) for k, at in enumerate(frames_s)),
        *(probe(n, at) for n, at in enumerate(queries_s)),
    ]
    arriving.sort(
        key=lambda item: (
            (item.media_ns, 0, item.k)
            if isinstance(item, WaitingFrame)
            else (item.message.media_ns, 1, item.message.order)
        )
    )
    inbox = Inbox(policy, "frozen")
    seen: list[int] = []
    met: list[int] = []
    asked: list[str] = []

    def work(choice: Choice) -> None:
        met.extend(passed.k for passed in choice.skipped)
        item = choice.item
        if isinstance(item, WaitingFrame):
            met.append(item.k)
            seen.append(item.media_ns)
            return
        visible = [at * SECOND_NS for at in frames_s if at * SECOND_NS <= item.message.media_ns + 1_000]
        assert (seen[-1] if seen else None) == (visible[-1] if visible else None)
        asked.append(item.message.query)
        inbox.close_chain(item.message.query)

    for item in arriving:
        inbox.put(item)
        if data.draw(st.booleans()) and (choice := inbox.take()) is not None:
            work(choice)
    while (choice := inbox.take()) is not None:
        work(choice)
    assert met == list(range(len(frames_s))), "each frame is met once, in order, observed or passed over"
    assert asked == [f"q{n + 1}" for n in range(len(queries_s))]
    assert policy == "latest" or len(seen) == len(frames_s)
