"""What the contract says of turns and of late closes, row by row, against the real session core.

One query is due at 1 s; its answer may take 30 s. The agent's side is spelled out by each test, as
another client would send it.
"""

from __future__ import annotations

import pytest

from streamsim.clock import make_clock
from streamsim.events import (
    AnyEvent,
    ChainClosed,
    LateTextReceived,
    ProbeRead,
    SessionEnded,
    TextReceived,
    TurnClosed,
    TurnEnded,
)
from streamsim.testing import seconds, tiny_query, tiny_samples, tiny_session
from streamsim_protocol import messages as wire
from streamsim_protocol.states import Connection

OWN = wire.FIRST_UNPROMPTED_TURN
IN_TIME_S, TOO_LATE_S = 2.0, 31.0
STARTED = wire.TurnStarted(turn=1, seen_media_ns=seconds(1))
ENOUGH = "x" * 8_192
"""32 of these are the longest turn there may be."""


class Talk:
    """A session at 1 s of media time, its two frames settled and its query's task probe sent as turn 1."""

    def __init__(self) -> None:
        self.session = tiny_session([tiny_query("a", 1)], samples=2)
        for sample in tiny_samples(2):
            self.session.add_sample(sample)
        self.session.end_media(())
        self.clock = make_clock("realtime", 1.0)
        self.agent = Connection()
        self.heard: list[wire.ServerMessage] = []
        """All that the agent has received."""
        self.events: list[AnyEvent] = []
        self.say(wire.Hello(versions=(1,), agent="x"))
        self.say(wire.Ready())
        self.session.clock_taken(self.clock.start(0))
        self.pass_time(1)
        self.say(wire.Settled(k=0, outcome="processed"), wire.Settled(k=1, outcome="processed"), at_s=1)

    def pass_time(self, to_s: float) -> None:
        while self.session.advance(self.clock.now(seconds(to_s))):
            pass
        self._deliver()

    def say(self, *messages: wire.AgentMessage, at_s: float = 0) -> None:
        """Send ``messages``, which arrive at ``at_s``; what is due by then has been done before."""
        for message in messages:
            self.session.receive(self.agent.stamp(message), self.clock.now(seconds(at_s)))
        self._deliver()

    def _deliver(self) -> None:
        for message in self.session.messages_to_send():
            self.agent.receive(message)
            self.heard.append(message)
        self.events += [event for _, event in self.session.take_events()]

    def of(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def outcomes(self) -> dict[str, str]:
        return {event.query: event.outcome for event in self.events if isinstance(event, ChainClosed)}


@pytest.fixture
def talk() -> Talk:
    talk = Talk()
    assert [type(message) for message in talk.heard] == [
        wire.Welcome,
        wire.Frame,
        wire.Frame,
        wire.ProbeMessage,
    ]
    return talk


def text(said: str, turn: int = 1) -> wire.Text:
    return wire.Text(turn=turn, text=said)


def ended(reason: wire.TurnEndReason, turn: int = 1) -> wire.TurnEnded:
    return wire.TurnEnded(turn=turn, reason=reason)


Said = list[wire.AgentMessage]
LATE_ROWS: dict[str, tuple[Said, Said, list[str]]] = {
    "closed while the probe waits": ([], [ended("closed")], []),
    "closed as the worker took it up": ([], [STARTED, text("B"), ended("closed")], ["B"]),
    "closed while it runs": ([STARTED, text("A")], [ended("closed")], []),
    "closed while text is on its way": ([STARTED], [text("B"), text("C"), ended("closed")], ["B", "C"]),
    "closed while its end is on its way": ([STARTED, text("A")], [ended("finished")], []),
    "closed while its failure is on its way": ([STARTED, text("A")], [ended("failed")], []),
}
"""What the agent says in time, what arrives after the close, and what of it is late text."""


@pytest.mark.parametrize("row", LATE_ROWS)
def test_a_late_close_is_never_an_error(talk: Talk, row: str) -> None:
    in_time, too_late, late_text = LATE_ROWS[row]
    talk.say(*in_time, at_s=IN_TIME_S)
    talk.pass_time(TOO_LATE_S)
    closed = [message for message in talk.heard if isinstance(message, wire.TurnClosed | wire.ChainClosed)]
    assert [(message.turn, message.reason) for message in closed if isinstance(message, wire.TurnClosed)] == [
        (1, "timed_out")
    ]
    assert isinstance(closed[-1], wire.ChainClosed)
    talk.say(*too_late, at_s=TOO_LATE_S)
    assert [event.text for event in talk.of(LateTextReceived)] == late_text  # type: ignore[union-attr]
    assert len(talk.of(TurnEnded)) == 1
    assert not talk.of(ProbeRead)
    assert talk.outcomes == {"q1": "timed_out"}
    # the turn was the last that was open: the session goes on to its ordinary end
    assert isinstance(talk.heard[-1], wire.End)
    talk.say(wire.Bye(), at_s=TOO_LATE_S)
    assert [event.reason for event in talk.of(SessionEnded)] == ["completed"]  # type: ignore[union-attr]


def test_an_end_in_time_sees_no_close(talk: Talk) -> None:
    talk.pass_time(TOO_LATE_S - 1e-9)
    talk.say(STARTED, text("A"), ended("finished"), at_s=TOO_LATE_S - 1e-9)
    talk.pass_time(TOO_LATE_S)
    assert not talk.of(TurnClosed)
    probe = talk.heard[-1]
    assert isinstance(probe, wire.ProbeMessage)
    assert (probe.turn, probe.probe, probe.options) == (2, "status", ())


def test_a_turn_that_says_too_much_is_closed_at_the_first_piece_beyond_the_limit(talk: Talk) -> None:
    talk.say(STARTED, *[text(ENOUGH)] * 32, at_s=IN_TIME_S)
    assert not talk.of(TurnClosed)
    talk.say(text("y"), text("z"), ended("closed"), at_s=IN_TIME_S)
    assert [event.reason for event in talk.of(TurnClosed)] == ["too_long"]  # type: ignore[union-attr]
    assert len(talk.of(TextReceived)) == 32
    assert [event.text for event in talk.of(LateTextReceived)] == ["y", "z"]  # type: ignore[union-attr]
    assert talk.outcomes == {"q1": "failed"}


def test_a_turn_of_the_agents_own_is_closed_in_the_same_way_without_a_chain(talk: Talk) -> None:
    own = wire.TurnStarted(turn=OWN + 5, seen_media_ns=None)
    talk.say(own, *[text(ENOUGH, OWN + 5)] * 33, ended("finished", OWN + 5), at_s=IN_TIME_S)
    closed = [message for message in talk.heard if isinstance(message, wire.TurnClosed | wire.ChainClosed)]
    assert [message.turn for message in closed if isinstance(message, wire.TurnClosed)] == [OWN + 5]
    assert not any(isinstance(message, wire.ChainClosed) for message in closed)
    assert not talk.session.ended


def test_after_end_the_server_says_nothing_and_takes_what_was_on_its_way(talk: Talk) -> None:
    talk.say(STARTED, ended("failed"), at_s=IN_TIME_S)
    assert isinstance(talk.heard[-1], wire.End)
    count = len(talk.heard)
    own = wire.TurnStarted(turn=OWN, seen_media_ns=None)
    talk.say(own, *[text(ENOUGH, OWN)] * 33, ended("finished", OWN), wire.Bye(), at_s=IN_TIME_S)
    assert len(talk.heard) == count
    assert [event.reason for event in talk.of(SessionEnded)] == ["completed"]  # type: ignore[union-attr]


def test_a_stopped_run_closes_what_is_open_and_waits_for_nothing(talk: Talk) -> None:
    talk.say(STARTED, text("A"), at_s=IN_TIME_S)
    talk.session.interrupt(talk.clock.now(seconds(IN_TIME_S)))
    talk.pass_time(IN_TIME_S)
    assert [type(message) for message in talk.heard[-3:]] == [wire.TurnClosed, wire.ChainClosed, wire.End]
    assert (talk.session.ended, talk.session.close_code) == (True, 1001)
    talk.say(text("B"), ended("closed"), at_s=IN_TIME_S)
    assert talk.outcomes == {"q1": "cancelled"}
    assert not any(isinstance(message, wire.Error) for message in talk.heard)


REFUSED: list[tuple[str, list[wire.AgentMessage]]] = [
    ("turn 1 started twice", [STARTED, STARTED]),
    ("turn 1 started twice", [STARTED, ended("finished"), STARTED]),
    ("turn 2 was never given out", [wire.TurnStarted(turn=2, seen_media_ns=None)]),
    ("turn 2147483647 was never given out", [wire.TurnStarted(turn=OWN - 1, seen_media_ns=None)]),
    (
        f"turn {OWN} started twice",
        [
            wire.TurnStarted(turn=OWN, seen_media_ns=None),
            ended("finished", OWN),
            wire.TurnStarted(turn=OWN, seen_media_ns=None),
        ],
    ),
    ("text for turn 1, which is not open", [text("A")]),
    ("text for turn 1, which is not open", [STARTED, ended("finished"), text("A")]),
    (f"text for turn {OWN}, which is not open", [text("A", OWN)]),
    ("end of turn 1, which is not open", [STARTED, ended("finished"), ended("finished")]),
    (f"end of turn {OWN}, which is not open", [ended("finished", OWN)]),
    ("turn 1 ended as 'finished' without having been closed", [ended("finished")]),
    ("turn 1 ended as 'failed' without having been closed", [ended("failed")]),
    ("turn 1 ended as 'closed' without having been closed", [STARTED, ended("closed")]),
    ("frame 0 was settled twice", [wire.Settled(k=0, outcome="skipped")]),
    ("frame 2 was never sent", [wire.Settled(k=2, outcome="processed")]),
]


@pytest.mark.parametrize(("detail", "messages"), REFUSED)
def test_what_no_race_can_cause_is_refused(
    talk: Talk, detail: str, messages: list[wire.AgentMessage]
) -> None:
    *legal, last = messages
    talk.say(*legal, at_s=IN_TIME_S)
    assert not talk.session.ended
    talk.session.receive(talk.agent.stamp(last), talk.clock.now(seconds(IN_TIME_S)))
    error = talk.session.messages_to_send()[-1]
    assert isinstance(error, wire.Error)
    assert (error.code, error.detail) == (4002, detail)
    assert (talk.session.ended, talk.session.close_code, talk.session.close_reason) == (True, 4002, detail)
