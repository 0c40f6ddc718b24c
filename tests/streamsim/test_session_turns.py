"""Turns, chains and endings in literal conversations, with what the journal keeps of each."""

from __future__ import annotations

import msgspec
import pytest

from streamsim.chain import MAX_TURN_CHARS
from streamsim.clock import make_clock
from streamsim.events import (
    AgentFailed,
    AgentReady,
    AnyEvent,
    ChainClosed,
    FrameSettled,
    GapSent,
    LateTextReceived,
    ProbeRead,
    ProbeSent,
    SessionEnded,
    StatsReported,
    TextReceived,
    TurnClosed,
    TurnEnded,
    TurnStarted,
    WarningRaised,
)
from streamsim.prompts import parse_prompts
from streamsim.session import Session
from streamsim.session.hold import Hold
from streamsim.testing import (
    SimulatedAgent,
    Simulation,
    Utterance,
    say,
    seconds,
    tiny_query,
    tiny_samples,
    tiny_session,
    tiny_simulation,
)
from streamsim_protocol import messages as wire
from streamsim_protocol.errors import BadMessage, CloseCode, MessageTooBig

OWN = wire.FIRST_UNPROMPTED_TURN


class Conversation:
    """A lockstep session over ``samples`` frames and a peer whose every word is written down here."""

    def __init__(self, *queries: float, samples: int = 1, greet: bool = True) -> None:
        self.session: Session = tiny_session(
            [tiny_query(f"id{n}", at_s) for n, at_s in enumerate(queries)], samples=samples, clock="lockstep"
        )
        for sample in tiny_samples(samples):
            self.session.add_sample(sample)
        self.session.end_media(["one picture is damaged"])
        self.clock = make_clock("lockstep", 1.0)
        self.wall_ns = 0
        self.seq = 0
        self.events: list[AnyEvent] = []
        self.messages: list[wire.ServerMessage] = []
        if greet:
            self.hear(wire.Hello(versions=(1,), agent="peer"), wire.Ready())
            self.session.clock_taken(self.clock.start(0))
            self.go_on()

    def hear(self, *messages: wire.AgentMessage) -> list[wire.ServerMessage]:
        """The session receives messages that acknowledge all it has said; returns what it says to that."""
        before = len(self.messages)
        for message in messages:
            self.seq += 1
            self.session.receive(
                msgspec.structs.replace(message, seq=self.seq, ack=len(self.messages)),
                self.clock.now(self.wall_ns),
            )
            self.collect()
        return self.messages[before:]

    def go_on(self, wall_s: float = 0.0) -> list[wire.ServerMessage]:
        """Time passes; returns what the session says."""
        before = len(self.messages)
        self.wall_ns += seconds(wall_s)
        while True:
            taken = self.clock.update(
                self.wall_ns,
                busy=self.session.busy,
                next_due_ns=self.session.next_due_ns(),
                starved=self.session.starved,
            )
            if taken is not None:
                self.session.clock_taken(taken)
            if not self.session.advance(self.clock.now(self.wall_ns)):
                break
        self.collect()
        return self.messages[before:]

    def collect(self) -> None:
        self.events += [event for _, event in self.session.take_events()]
        self.messages += self.session.messages_to_send()

    def told(self, *kinds: type[AnyEvent]) -> list[AnyEvent]:
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def ended(self) -> SessionEnded:
        (event,) = (event for event in self.events if isinstance(event, SessionEnded))
        return event


def settle(k: int) -> wire.Settled:
    return wire.Settled(k=k, outcome="processed")


def turn(n: int, text: str, reason: wire.TurnEndReason = "finished") -> list[wire.AgentMessage]:
    return [
        wire.TurnStarted(turn=n, seen_media_ns=0),
        wire.Text(turn=n, text=text),
        wire.TurnEnded(turn=n, reason=reason),
    ]


def kinds(messages: list[wire.ServerMessage]) -> list[str]:
    return [type(message).__name__ for message in messages]


class TestChain:
    def test_probes_carry_the_stem_and_only_the_task_its_options(self) -> None:
        talk = Conversation(0)
        (_, task) = talk.messages[-2:]
        assert isinstance(task, wire.ProbeMessage)
        assert (task.probe, task.options) == ("task", ("crimson", "indigo"))
        (status,) = talk.hear(settle(0), *turn(1, "B"))
        (cause,) = talk.hear(*turn(2, "D"))
        for probe, name in ((status, "status"), (cause, "cause")):
            assert isinstance(probe, wire.ProbeMessage)
            assert (probe.probe, probe.options, probe.stem) == (name, (), "What about id0?")
            assert (
                "crimson" not in probe.text and "indigo" not in probe.text and "What about id0?" in probe.text
            )
        assert kinds(talk.hear(*turn(3, "A, C"))) == ["ChainClosed", "End"]
        assert talk.told(ProbeRead) == [
            ProbeRead(query="q1", probe="task", turn=1, letters="B", valid=True),
            ProbeRead(query="q1", probe="status", turn=2, letters="D", valid=True),
            ProbeRead(query="q1", probe="cause", turn=3, letters="AC", valid=True),
        ]
        assert talk.told(ChainClosed) == [ChainClosed(query="q1", outcome="answered")]

    @pytest.mark.parametrize("said", ["A", "B", "cannot tell", "", "C or D"])
    def test_a_known_or_invalid_status_closes_the_chain(self, said: str) -> None:
        talk = Conversation(0)
        talk.hear(settle(0), *turn(1, "A"))
        assert kinds(talk.hear(*turn(2, said)))[0] == "ChainClosed"
        assert talk.told(ChainClosed) == [ChainClosed(query="q1", outcome="answered")]

    def test_open_queries_and_task_chains_end_with_the_task(self) -> None:
        agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: say("red", 0))
        queries = [tiny_query("a", 1, kind="open"), tiny_query("b", 2)]
        simulation = tiny_simulation(queries, agent, samples=3, chain="task").run()
        probes = [event.probe for _, event in simulation.events if isinstance(event, ProbeSent)]
        assert probes == ["task", "task"]

    def test_a_failed_answer_closes_the_chain_with_its_traceback(self) -> None:
        talk = Conversation(0)
        end = wire.TurnEnded(turn=1, reason="failed", error="Traceback: out of memory")
        assert kinds(talk.hear(settle(0), *turn(1, "B")[:2], end)) == ["ChainClosed", "End"]
        (ended,) = talk.told(TurnEnded)
        assert isinstance(ended, TurnEnded) and ended.error == "Traceback: out of memory"
        assert talk.told(ProbeRead) == []
        assert talk.told(ChainClosed) == [ChainClosed(query="q1", outcome="failed")]

    def test_a_failed_frame_costs_that_frame_alone(self) -> None:
        agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: say("A", 0), failing={1})
        simulation = tiny_simulation([tiny_query("a", 2)], agent, samples=3).run()
        settled = [event for _, event in simulation.events if isinstance(event, FrameSettled)]
        assert [(event.k, event.outcome, event.error) for event in settled] == [
            (0, "processed", None),
            (1, "failed", "Traceback: observe"),
            (2, "processed", None),
        ]
        assert simulation.session.close_code == CloseCode.NORMAL


class TestPictures:
    def test_samples_without_picture_are_gaps_and_cost_nothing(self) -> None:
        agent = SimulatedAgent(observe=lambda k: seconds(0.1), answer=lambda probe: say("A", 0))
        simulation = tiny_simulation(
            [tiny_query("a", 0)], agent, samples=3, without_picture=(0, 1), credit=1, chain="task"
        ).run()
        journal = [event for _, event in simulation.events if isinstance(event, GapSent | WarningRaised)]
        assert journal == [
            GapSent(from_k=0, to_k=1, reason="no_picture", seq=2),
            WarningRaised(code="no_picture", detail="q1 is asked before any picture"),
            GapSent(from_k=1, to_k=2, reason="no_picture", seq=5),
        ]
        seen = [event.seen_media_ns for _, event in simulation.events if isinstance(event, TurnStarted)]
        assert seen == [None]

    def test_the_prompt_names_exactly_the_visible_frames(self) -> None:
        """Frames at 0, 1, 2.0000005 (visible by the tolerance) and 2.000002 s (not)."""
        agent = SimulatedAgent(observe=lambda k: 0, answer=lambda probe: say("A", 0))
        simulation = tiny_simulation(
            [tiny_query("a", 2)],
            agent,
            times_ns=[0, seconds(1), seconds(2) + 500, seconds(2) + 2000],
            without_picture=(1,),
            chain="task",
        ).run()
        (probe,) = (event for _, event in simulation.events if isinstance(event, ProbeSent))
        assert (probe.media_ns, probe.due_media_ns) == (seconds(2), seconds(2) + 500)
        (started,) = (event for _, event in simulation.events if isinstance(event, TurnStarted))
        assert started.seen_media_ns == seconds(2) + 500

    def test_every_probe_of_a_chain_is_about_the_history_up_to_its_query(self) -> None:
        """Asked at 2 s, the status at 5 s and the cause at 8 s still name F0 to F2."""
        text = {"any": "{stem} {options} seen: {frame_stamps}"}
        later = {"any": "{stem} seen: {frame_stamps} ({interval})"}
        agent = SimulatedAgent(
            observe=lambda k: 0, answer=lambda probe: say("C" if probe.probe == "status" else "A", seconds(3))
        )
        simulation = tiny_simulation(
            [tiny_query("a", 2)],
            agent,
            times_ns=[0, seconds(1), seconds(2) + 1_000, *(seconds(k) for k in range(3, 10))],
            prompts=parse_prompts({"task": text, "status": later, "cause": later}),
        ).run()
        probes = [event for _, event in simulation.events if isinstance(event, ProbeSent)]
        assert [probe.text.partition("seen: ")[2] for probe in probes] == [
            "0 s, 1 s, 2 s",
            "0 s, 1 s, 2 s (0 s to 2 s)",
            "0 s, 1 s, 2 s (0 s to 2 s)",
        ]


class TestWords:
    def test_late_text_is_kept_and_never_read(self) -> None:
        talk = Conversation(0)
        talk.hear(settle(0), *turn(1, "A")[:2])
        assert kinds(talk.go_on(30)) == ["TurnClosed", "ChainClosed"]
        talk.hear(wire.Text(turn=1, text="B"), wire.TurnEnded(turn=1, reason="closed", dropped_chars=7))
        assert talk.told(TextReceived, LateTextReceived, TurnClosed, TurnEnded) == [
            TextReceived(turn=1, text="A"),
            TurnClosed(turn=1, reason="timed_out"),
            LateTextReceived(turn=1, text="B"),
            TurnEnded(turn=1, reason="closed", service_ns=0, first_text_ns=None, marks={}, dropped_chars=7),
        ]
        assert talk.told(ProbeRead) == []

    def test_a_turn_that_says_too_much_is_closed_as_failed(self) -> None:
        half = "x" * (MAX_TURN_CHARS // 2)
        talk = Conversation(0)
        talk.hear(settle(0), *turn(1, half)[:2], wire.Text(turn=1, text=half))
        assert talk.told(TurnClosed) == []
        answer = talk.hear(wire.Text(turn=1, text="y"))
        assert answer[0] == wire.TurnClosed(turn=1, reason="too_long", seq=answer[0].seq, ack=answer[0].ack)
        assert kinds(answer) == ["TurnClosed", "ChainClosed"]
        assert talk.told(ChainClosed) == [ChainClosed(query="q1", outcome="failed")]
        assert talk.told(LateTextReceived) == [LateTextReceived(turn=1, text="y")]
        assert kinds(talk.hear(wire.TurnEnded(turn=1, reason="finished"))) == ["End"]

    def test_a_late_cancel_is_no_error(self) -> None:
        """The worker had not taken the closed turn up, or had, or had even ended it."""
        for messages in ([], turn(1, "A")[:1], turn(1, "A")[:2]):
            talk = Conversation(0)
            talk.hear(settle(0))
            talk.go_on(30)
            talk.hear(*messages, wire.TurnEnded(turn=1, reason="finished" if messages else "closed"))
            assert talk.told(ChainClosed) == [ChainClosed(query="q1", outcome="timed_out")]
            assert not talk.session.ended and kinds(talk.messages)[-1] == "End"

    def test_turns_that_nobody_asked_for(self) -> None:
        talk = Conversation(samples=2)
        talk.hear(wire.TurnStarted(turn=OWN, seen_media_ns=0), settle(0))
        assert talk.session.busy and talk.go_on() == []
        talk.hear(wire.Text(turn=OWN, text="look!"))
        talk.hear(wire.TurnEnded(turn=OWN, reason="finished"))
        assert not talk.session.busy and kinds(talk.go_on()) == ["Frame"]
        assert talk.told(TextReceived, ChainClosed, ProbeRead) == [TextReceived(turn=OWN, text="look!")]

    def test_what_nobody_asked_for_is_never_late(self) -> None:
        talk = Conversation(samples=2)
        talk.hear(settle(0), wire.TurnStarted(turn=OWN, seen_media_ns=0))
        assert kinds(talk.go_on(89)) == []
        talk.hear(*turn(OWN, "look!")[1:])
        assert talk.told(TurnClosed) == [] and not talk.session.ended

    def test_stats_that_are_no_numbers_are_left_out(self) -> None:
        talk = Conversation()
        talk.hear(wire.Stats(values={"memory_bytes": 3.0, "ratio": float("nan"), "size": float("inf")}))
        talk.hear(wire.Stats(values={"ratio": float("nan")}))
        assert talk.told(StatsReported) == [StatsReported(values={"memory_bytes": 3.0})]


class TestEndings:
    def test_interrupt_closes_what_is_open_and_says_end(self) -> None:
        talk = Conversation(0, 0, 5, samples=6)
        talk.hear(settle(0), *turn(1, "A")[:2])
        before = len(talk.messages)
        talk.session.interrupt(talk.clock.now(seconds(1)))
        talk.collect()
        assert [
            (type(message).__name__, getattr(message, "turn", None) or getattr(message, "reason", None))
            for message in talk.messages[before:]
        ] == [
            ("TurnClosed", 1),
            ("ChainClosed", None),
            ("TurnClosed", 2),
            ("ChainClosed", None),
            ("End", "interrupted"),
        ]
        assert talk.told(ChainClosed) == [
            ChainClosed(query="q1", outcome="cancelled"),
            ChainClosed(query="q2", outcome="cancelled"),
            ChainClosed(query="q3", outcome="not_reached"),
        ]
        assert (talk.ended.reason, talk.session.close_code) == ("interrupted", CloseCode.GOING_AWAY)

    def test_interrupt_before_ready_and_before_hello(self) -> None:
        for greeting, said in (([], []), ([wire.Hello(versions=(1,), agent="x")], ["Welcome", "End"])):
            talk = Conversation(0, greet=False)
            talk.hear(*greeting)
            talk.session.interrupt(talk.clock.now(0))
            talk.collect()
            assert kinds(talk.messages) == said
            assert talk.told(ChainClosed) == [ChainClosed(query="q1", outcome="not_reached")]

    def test_a_turn_begun_after_the_end_breaks_nothing(self) -> None:
        """``end`` was on its way; nothing but ``error`` may follow it."""
        talk = Conversation()
        assert kinds(talk.hear(settle(0))) == ["End"]
        talk.hear(*turn(OWN, "x" * MAX_TURN_CHARS)[:2], wire.Text(turn=OWN, text="y"))
        assert talk.told(TurnClosed) == [TurnClosed(turn=OWN, reason="too_long")]
        talk.hear(wire.TurnStarted(turn=OWN + 1, seen_media_ns=0))
        talk.session.interrupt(talk.clock.now(0))
        talk.collect()
        assert kinds(talk.messages)[-1] == "End"
        assert talk.ended.reason == "interrupted"

    def test_a_lost_connection(self) -> None:
        talk = Conversation(0, 5, samples=6)
        talk.session.disconnect(talk.clock.now(0), "the connection ended with code 1006")
        talk.collect()
        assert talk.told(ChainClosed) == [
            ChainClosed(query="q1", outcome="disconnected"),
            ChainClosed(query="q2", outcome="not_reached"),
        ]
        assert (talk.ended.reason, talk.ended.detail, talk.ended.unsettled_frames) == (
            "disconnected",
            "the connection ended with code 1006",
            1,
        )

    @pytest.mark.parametrize("phase", ["load", "begin"])
    def test_an_agent_that_cannot_begin(self, phase: wire.Phase) -> None:
        talk = Conversation(0, greet=False)
        talk.hear(wire.Hello(versions=(1,), agent="x"), wire.Failed(phase=phase, error="Traceback: no GPU"))
        assert talk.told(AgentFailed, AgentReady) == [AgentFailed(phase=phase, error="Traceback: no GPU")]
        assert talk.told(ChainClosed) == [ChainClosed(query="q1", outcome="not_reached")]
        assert (talk.ended.reason, talk.session.close_code) == ("agent_failed", CloseCode.AGENT_FAILED)

    def test_figures_that_fail_leave_the_turn_as_it_is(self) -> None:
        talk = Conversation(0)
        *begun, ended = turn(1, "A")
        talk.hear(settle(0), *begun, wire.Failed(phase="stats", error="Traceback: no tally"), ended)
        assert talk.told(AgentFailed) == [AgentFailed(phase="stats", error="Traceback: no tally")]
        read = ProbeRead(query="q1", probe="task", turn=1, letters="A", valid=True)
        assert talk.told(ProbeRead) == [read] and not talk.session.ended

    @pytest.mark.parametrize("phase", ["end", "save"])
    def test_an_agent_that_cannot_end_well_has_still_answered(self, phase: wire.Phase) -> None:
        talk = Conversation()
        talk.hear(settle(0), wire.Failed(phase=phase, error="Traceback: disk full"), wire.Bye())
        assert talk.told(AgentFailed) == [AgentFailed(phase=phase, error="Traceback: disk full")]
        assert (talk.ended.reason, talk.ended.saved) == ("completed", None)

    def test_bye_says_what_was_saved(self) -> None:
        talk = Conversation()
        talk.hear(settle(0), wire.Bye(saved="ab" * 32, saved_bytes=10))
        assert talk.ended == SessionEnded(reason="completed", saved="ab" * 32, saved_bytes=10)
        assert talk.told(WarningRaised) == [WarningRaised(code="video", detail="one picture is damaged")]


class TestBreaches:
    """Each ends the session with its code, says so first, and what was open counts as disconnected."""

    @pytest.mark.parametrize(
        ("message", "detail"),
        [
            (settle(3), "frame 3 was never sent"),
            (wire.TurnStarted(turn=9, seen_media_ns=None), "turn 9 was never given out"),
            (wire.Text(turn=1, text="A"), "text for turn 1, which is not open"),
            (wire.Text(turn=OWN, text="A"), f"text for turn {OWN}, which is not open"),
            (wire.TurnEnded(turn=9, reason="finished"), "end of turn 9, which is not open"),
            (
                wire.TurnEnded(turn=1, reason="finished"),
                "turn 1 ended as 'finished' without having been closed",
            ),
            (wire.TurnEnded(turn=1, reason="closed"), "turn 1 ended as 'closed' without having been closed"),
            (wire.Bye(), "unexpected 'bye' while playing"),
            (wire.Ready(), "unexpected 'ready' while playing"),
            (wire.Hello(versions=(1,), agent="x"), "unexpected 'hello' while playing"),
        ],
    )
    def test_wrong_order(self, message: wire.AgentMessage, detail: str) -> None:
        talk = Conversation(0, 5, samples=6)
        (error,) = talk.hear(message)
        assert isinstance(error, wire.Error) and (error.code, error.detail) == (4002, detail)
        assert (talk.ended.reason, talk.ended.detail) == ("protocol_error", detail)
        assert talk.session.close_code == CloseCode.WRONG_ORDER
        assert talk.told(ChainClosed) == [
            ChainClosed(query="q1", outcome="disconnected"),
            ChainClosed(query="q2", outcome="not_reached"),
        ]
        assert talk.hear(wire.Ack()) == [] and talk.go_on(1000) == []

    @pytest.mark.parametrize(
        ("before", "message", "detail"),
        [
            ([settle(0)], settle(0), "frame 0 was settled twice"),
            (turn(1, "A")[:1], wire.TurnStarted(turn=1, seen_media_ns=0), "turn 1 started twice"),
            (turn(1, "A"), wire.TurnStarted(turn=1, seen_media_ns=0), "turn 1 started twice"),
            (
                turn(1, "A")[:1],
                wire.TurnEnded(turn=1, reason="closed"),
                "turn 1 ended as 'closed' without having been closed",
            ),
            (turn(1, "A"), wire.Text(turn=1, text="B"), "text for turn 1, which is not open"),
            (turn(1, "A"), wire.TurnEnded(turn=1, reason="finished"), "end of turn 1, which is not open"),
        ],
    )
    def test_saying_things_twice(
        self, before: list[wire.AgentMessage], message: wire.AgentMessage, detail: str
    ) -> None:
        talk = Conversation(0)
        talk.hear(*before)
        assert not talk.session.ended
        talk.hear(message)
        assert talk.ended.detail == detail

    def test_starting_what_was_closed_and_settled(self) -> None:
        talk = Conversation(0, 0)
        talk.go_on(30)
        talk.hear(wire.TurnEnded(turn=1, reason="closed"))
        talk.hear(wire.TurnStarted(turn=1, seen_media_ns=None))
        assert talk.ended.detail == "turn 1 started twice"

    @pytest.mark.parametrize(
        ("seq", "ack", "detail"),
        [
            (2, 1, "expected seq 3, got 2"),
            (4, 1, "expected seq 3, got 4"),
            (3, 99, "expected ack from 1 to 3, got 99"),
            (3, 0, "expected ack from 1 to 3, got 0"),
        ],
    )
    def test_wrong_numbers(self, seq: int, ack: int, detail: str) -> None:
        talk = Conversation(0)  # welcome, frame, task; hello, ready
        talk.session.receive(wire.Ack(seq=seq, ack=ack), talk.clock.now(0))
        talk.collect()
        assert talk.ended.detail == detail

    def test_no_common_version(self) -> None:
        talk = Conversation(greet=False)
        talk.hear(wire.Hello(versions=(2, 3), agent="x"))
        assert talk.session.close_code == CloseCode.VERSION_MISMATCH
        assert talk.ended.detail == "expected protocol version 1, got [2, 3]"

    def test_what_the_driver_could_not_decode(self) -> None:
        talk = Conversation(0)
        talk.session.refuse(BadMessage("expected int, got str at $.seq"), talk.clock.now(0))
        talk.collect()
        assert kinds(talk.messages)[-1] == "Error"
        assert (talk.ended.reason, talk.session.close_code) == ("protocol_error", CloseCode.BAD_MESSAGE)

    def test_an_oversized_message_is_told_by_the_close_alone(self) -> None:
        talk = Conversation(0)
        talk.session.refuse(MessageTooBig("expected at most 65536 bytes"), talk.clock.now(0))
        talk.collect()
        assert kinds(talk.messages)[-1] == "ProbeMessage"
        assert (talk.ended.reason, talk.session.close_code) == ("protocol_error", CloseCode.TOO_BIG)

    @pytest.mark.parametrize(
        ("text", "fenced"), [(None, False), ("", False), ("spam", True)], ids=["stats", "empty", "late"]
    )
    def test_a_flood(self, text: str | None, fenced: bool) -> None:
        """1,000 messages and 50 more for each of the server's: text of an open turn is not among them."""
        talk = Conversation(0)
        talk.hear(settle(0), *turn(1, "A")[:1])
        if fenced:
            talk.go_on(30)
        spam = wire.Stats(values={"x": 1.0}) if text is None else wire.Text(turn=1, text=text)
        allowed = 1_000 + 50 * len(talk.messages)
        talk.hear(*[wire.Text(turn=1, text="a")] * (0 if fenced else 5))
        talk.hear(*[spam] * (allowed - 4))  # hello, ready, settled, started
        assert not talk.session.ended
        talk.hear(spam)
        assert talk.ended.detail == f"expected at most {allowed} messages by now, got {allowed + 1}"
        assert talk.session.close_code == CloseCode.FLOOD

    def test_a_long_stream_of_words_is_no_flood(self) -> None:
        talk = Conversation(0)
        talk.hear(settle(0), *turn(1, "A")[:1])
        talk.hear(*[wire.Text(turn=1, text="word ")] * 5_000)
        assert not talk.session.ended


def test_an_item_is_held_by_what_held_it_or_what_it_fell_due_behind() -> None:
    hold = Hold()
    assert hold.end(seconds(1), seconds(1)) is None
    hold.begin("decoder")
    hold.begin("credit")
    assert hold.end(seconds(2), seconds(20)) == "credit"
    assert hold.end(seconds(19), seconds(20)) == "credit", "it fell due behind the one before"
    assert hold.end(seconds(20), seconds(20)) is None
    assert hold.end(seconds(21), seconds(21)) is None


def test_every_word_in_time_reaches_the_reader() -> None:
    """The answer is all pieces together, however they were cut."""
    pieces = ((0, "Ans"), (1, "wer: "), (2, "("), (3, "B"), (4, ")"))
    agent = SimulatedAgent(
        observe=lambda k: 0, answer=lambda probe: Utterance(service_ns=seconds(1), pieces=pieces)
    )
    simulation: Simulation = tiny_simulation([tiny_query("a", 0)], agent, samples=1, chain="task").run()
    assert [event.letters for _, event in simulation.events if isinstance(event, ProbeRead)] == ["B"]
