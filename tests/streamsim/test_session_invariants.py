"""What must hold in every session, over arbitrary episodes, agents, delays and mishaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamsim.chain import MAX_TURN_CHARS
from streamsim.episodes.dataset import DatasetInfo, load_dataset, write_dataset
from streamsim.episodes.episode import Episode, EpisodeQuery, KeyEntry, Status
from streamsim.events import (
    AnyEvent,
    ChainClosed,
    Instant,
    ProbeRead,
    ProbeSent,
    SessionEnded,
    TextReceived,
    TurnClosed,
    TurnEnded,
)
from streamsim.testing import SimulatedAgent, Simulation, Utterance, seconds, tiny_simulation
from streamsim_protocol import messages as wire

STATUS_READINGS = {"A": "known", "B.": "known", "C": "uncertain", "Answer: D": "uncertain"}
TEXTS = ["A", "B.", "C", "Answer: D", "", "perhaps", "A or B", "E", "A, C"]
QUICK: list[float | None] = [0.0, 0.1, 0.3, 1.0]
SLOW = [*QUICK, *QUICK, 1.7, 4.0]


@dataclass(frozen=True, kw_only=True)
class Mishap:
    """Something that comes from outside at ``at_s``."""

    kind: str
    at_s: float


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """All that decides the course of a session."""

    queries: tuple[EpisodeQuery, ...]
    times_ns: tuple[int, ...]
    without_picture: tuple[int, ...]
    observe_s: tuple[float | None, ...]
    answers: tuple[tuple[str, float | None, bool], ...]
    failing: frozenset[int]
    idle_after_cancel_s: float | None
    save_s: float | None
    decoded_s: tuple[float, ...]
    to_agent_s: float
    to_server_s: float
    ticks: bool
    mishap: Mishap | None
    config: dict[str, Any]

    def simulate(self, *, audited: bool = True) -> Simulation:
        """Run it to its end, or until nothing can happen."""
        agent = SimulatedAgent(
            observe=lambda k: _maybe_ns(self.observe_s[k % len(self.observe_s)]),
            answer=self._answer,
            capabilities=("ticks",) if self.ticks else (),
            failing=self.failing,
            idle_after_cancel_ns=_maybe_ns(self.idle_after_cancel_s),
            save_ns=_maybe_ns(self.save_s),
        )
        simulation = tiny_simulation(
            self.queries,
            agent,
            times_ns=self.times_ns,
            without_picture=self.without_picture,
            decoded_ns=lambda k: seconds(self.decoded_s[k % len(self.decoded_s)]) if self.decoded_s else 0,
            to_agent_ns=seconds(self.to_agent_s),
            to_server_ns=seconds(self.to_server_s),
            audited=audited,
            **self.config,
        )
        if self.mishap is not None:
            at_ns = seconds(self.mishap.at_s)
            if self.mishap.kind == "stop":
                simulation.stop_agent(at_ns)
            elif self.mishap.kind == "pause":
                simulation.stop_agent(at_ns, at_ns + seconds(1.5))
            else:
                simulation.schedule(at_ns, MISHAPS[self.mishap.kind])
        return simulation.run()

    def _answer(self, probe: wire.ProbeMessage) -> Utterance:
        text, service_s, fails = self.answers[probe.turn % len(self.answers)]
        service_ns = _maybe_ns(service_s)
        spoken_ns = service_ns or 0
        pieces = tuple((spoken_ns * (n + 1) // len(text), piece) for n, piece in enumerate(text[:50]))
        if text == "too long":
            pieces = ((0, "x" * (MAX_TURN_CHARS // 16)),) * 17
        return Utterance(service_ns=service_ns, pieces=pieces, error="Traceback: answer" if fails else None)


MISHAPS: dict[str, Callable[[Any, Instant], None]] = {
    "interrupt": lambda session, now: session.interrupt(now),
    "disconnect": lambda session, now: session.disconnect(now, "the connection ended"),
    "fail": lambda session, now: session.fail("agent_failed", now, "the process died"),
    "media": lambda session, now: session.fail("media_failed", now, "the decoder died"),
}


def _maybe_ns(value_s: float | None) -> int | None:
    return None if value_s is None else seconds(value_s)


@st.composite
def scenarios(draw: st.DrawFn, *, calm: bool = False) -> Scenario:
    """``calm``: agents that always come to an end, and nothing from outside."""
    count = draw(st.integers(0, 7))
    gaps_ns = draw(st.lists(st.sampled_from([500, 10**8, 10**9, 2 * 10**9]), min_size=count, max_size=count))
    times_ns = [sum(gaps_ns[:k]) for k in range(count)]
    moments_ns = st.one_of(
        st.builds(
            lambda time, shift: max(0, time + shift),
            st.sampled_from(times_ns or [0]),
            st.sampled_from([0, -1001, -1000, -999, 1, 10**7]),
        ),
        st.integers(0, 8).map(lambda half: half * 5 * 10**8),
    )
    queries = [
        EpisodeQuery(
            id=f"id-{n}",
            kind=kind,
            media_ns=media_ns,
            stem=f"stem {n}",
            options=("red", "blue", "green") if kind == "choice" else (),
        )
        for n, (kind, media_ns) in enumerate(
            draw(st.lists(st.tuples(st.sampled_from(["choice", "choice", "open"]), moments_ns), max_size=4))
        )
    ]
    durations = QUICK if calm else SLOW
    if not calm and draw(st.sampled_from([False] * 4 + [True])):
        durations = [*SLOW, None]  # it never comes to an end
    texts = st.sampled_from(TEXTS if calm else [*TEXTS, "too long"])
    clock = draw(st.sampled_from(["realtime", "lockstep", "skip", "scaled"]))
    mishaps = st.builds(
        Mishap,
        kind=st.sampled_from(["stop", "pause", *MISHAPS]),
        at_s=st.sampled_from([0.1, 0.5, 1.0, 2.2, 3.0]),
    )
    return Scenario(
        queries=tuple(queries),
        times_ns=tuple(times_ns),
        without_picture=tuple(draw(st.sets(st.integers(0, 6), max_size=2))),
        observe_s=tuple(draw(st.lists(st.sampled_from(durations), min_size=1, max_size=4))),
        answers=tuple(
            draw(
                st.lists(
                    st.tuples(texts, st.sampled_from(durations), st.sampled_from([False] * 5 + [True])),
                    min_size=1,
                    max_size=5,
                )
            )
        ),
        failing=draw(st.frozensets(st.integers(0, 6), max_size=2)),
        idle_after_cancel_s=draw(st.sampled_from([0.0, 0.5, None])),
        save_s=draw(st.sampled_from([0.0, 0.5] if calm else [0.0, 0.0, 0.5, None])),
        decoded_s=tuple(draw(st.lists(st.sampled_from([0.0, 0.4, 3.0]), max_size=3))),
        to_agent_s=draw(st.sampled_from([0.0, 0.05, 0.4])),
        to_server_s=draw(st.sampled_from([0.0, 0.05, 0.4])),
        ticks=draw(st.booleans()),
        mishap=None if calm else draw(st.none() | st.none() | mishaps),
        config={
            "clock": clock,
            "rate": draw(st.sampled_from([0.5, 3.0])) if clock == "scaled" else 1.0,
            "history": draw(st.sampled_from(["frozen", "live"])),
            "chain": draw(st.sampled_from(["full", "full", "task"])),
            "frames": draw(st.sampled_from([None, "all", "latest"])),
            "credit": draw(st.sampled_from([1, 2, 32])),
            "credit_timeout_ns": seconds(draw(st.sampled_from([0.5, 60.0]))),
            "answer_timeout_ns": seconds(draw(st.sampled_from([30.0, 30.0, 2.0, 0.5]))),
            "hang_timeout_ns": seconds(draw(st.sampled_from([3.0, 3.0, 0.5]))),
            "drain_timeout_ns": seconds(draw(st.sampled_from([20.0, 20.0, 1.0]))),
        },
    )


def examples(count: int) -> settings:
    """The same examples in every run: a failure stays until it is mended."""
    return settings(
        max_examples=count, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )


@pytest.mark.slow
@examples(400)
@given(scenarios())
def test_every_session_keeps_the_invariants_and_ends(scenario: Scenario) -> None:
    simulation = scenario.simulate()  # the audit looks at every step
    session = simulation.session
    assert session.ended
    assert not session.advance(Instant(10**15, 10**15))
    session.receive(wire.Ack(seq=1), Instant(10**15, 10**15))
    session.interrupt(Instant(10**15, 10**15))
    session.disconnect(Instant(10**15, 10**15), "again")
    session.warn(Instant(10**15, 10**15), "late", "a word after the end")
    assert session.messages_to_send() == [] and session.take_events() == []
    assert session.next_wall_deadline() is None and session.next_due_ns() is None


@pytest.mark.slow
@examples(150)
@given(scenarios(calm=True))
def test_what_an_agent_says_in_time_is_what_counts(scenario: Scenario) -> None:
    """Readings and outcomes derived anew from the words and the stamps in the journal."""
    events = scenario.simulate().events
    chain = scenario.config["chain"]
    kinds = {f"q{n + 1}": query.kind for n, query in enumerate(sorted_queries(scenario))}
    spoken = texts_in_time(events)
    probes: dict[str, list[tuple[str, str | None]]] = {name: [] for name in kinds}
    for _, event in events:
        if isinstance(event, ProbeSent):
            probes[event.query].append((event.probe, spoken.get(event.turn)))
    outcomes = {event.query: event.outcome for _, event in events if isinstance(event, ChainClosed)}
    assert outcomes.keys() == probes.keys()
    for query, said in probes.items():
        expected = ["task"]
        if chain == "full" and kinds[query] == "choice" and said and said[0][1] is not None:
            expected.append("status")
            if len(said) > 1 and said[1][1] is not None and STATUS_READINGS.get(said[1][1]) == "uncertain":
                expected.append("cause")
        assert [probe for probe, _ in said] == expected[: len(said)]
        in_time = all(text is not None for _, text in said)
        assert (outcomes[query] == "answered") == (in_time and len(said) == len(expected))


def sorted_queries(scenario: Scenario) -> list[EpisodeQuery]:
    return sorted(scenario.queries, key=lambda query: query.media_ns)


def texts_in_time(events: list[tuple[Instant, AnyEvent]]) -> dict[int, str]:
    """The whole text of every turn that finished before it was fenced."""
    pieces: dict[int, list[str]] = {}
    fenced: set[int] = set()
    texts: dict[int, str] = {}
    for _, event in events:
        match event:
            case TextReceived(turn=turn, text=text):
                assert turn not in fenced
                pieces.setdefault(turn, []).append(text)
            case TurnClosed(turn=turn):
                fenced.add(turn)
            case TurnEnded(turn=turn, reason="finished") if turn not in fenced:
                texts[turn] = "".join(pieces.get(turn, ()))
            case _:
                pass
    return texts


def sent_bytes(simulation: Simulation, until_media_ns: int | None = None) -> list[bytes]:
    """What the server sent, up to and including an instant of media time; ``end`` apart."""
    return [
        exchange.data
        for exchange in simulation.exchanges
        if exchange.sender == "server"
        and (until_media_ns is None or exchange.at.media_ns <= until_media_ns)
        and not (until_media_ns is not None and isinstance(exchange.message, wire.End))
    ]


@pytest.mark.slow
@examples(150)
@given(scenarios())
def test_renaming_everything_changes_no_message(scenario: Scenario) -> None:
    """Ids carry hints, so nothing on the wire may follow from them."""
    renamed = replace(
        scenario,
        queries=tuple(
            msgspec.structs.replace(query, id=f"{9 - n}_uncertain_{n}")
            for n, query in enumerate(scenario.queries)
        ),
        config=scenario.config | {"episode": "P02-7_future", "subset": "bike", "run": "other", "attempt": 3},
    )
    assert sent_bytes(scenario.simulate(audited=False)) == sent_bytes(renamed.simulate(audited=False))


@pytest.mark.slow
@examples(50)
@given(scenarios(), st.sampled_from([0, 1]), st.sampled_from(["known", "uncertain"]))
def test_rewriting_the_answer_key_changes_no_message(
    tmp_path_factory: pytest.TempPathFactory, scenario: Scenario, answer: int, status: Status
) -> None:
    """What is played is what the public half gives, whatever the hidden half says."""
    sent = []
    keys: tuple[tuple[int, Status], ...] = ((0, "known"), (answer, status))
    for answer_index, said in keys:
        key = [
            KeyEntry(
                id=query.id,
                episode_id="episode",
                subset="subset",
                media_ns=query.media_ns,
                answer_index=answer_index,
                status=said,
                question_type=said,
            )
            for query in scenario.queries
        ]
        folder = tmp_path_factory.mktemp("dataset") / "tiny"
        episode = Episode(id="episode", subset="subset", video="tiny.mp4", queries=scenario.queries)
        write_dataset(folder, DatasetInfo(name="tiny", chain="full", source="a test"), [episode], key)
        (loaded,) = load_dataset(folder).episodes
        sent.append(sent_bytes(replace(scenario, queries=loaded.queries).simulate(audited=False)))
    assert sent[0] == sent[1]


@pytest.mark.slow
@examples(150)
@given(scenarios(), st.data())
def test_cutting_the_future_off_changes_no_message_before(scenario: Scenario, data: st.DataObject) -> None:
    """Whatever is due later than t leaves no trace up to t. When the episode is over, it may end."""
    config = scenario.config | {"drain_timeout_ns": seconds(10_000)}  # it starts with the episode's end
    scenario = replace(scenario, config=config)
    simulation = scenario.simulate(audited=False)
    due_ns = [*scenario.times_ns, *(plan.due_media_ns for plan in planned(simulation))]
    cut_ns = data.draw(st.sampled_from(due_ns or [0]))
    kept = {plan.id for plan in planned(simulation) if plan.due_media_ns <= cut_ns}
    cut = replace(
        scenario,
        times_ns=tuple(time for time in scenario.times_ns if time <= cut_ns),
        queries=tuple(query for query in scenario.queries if query.id in kept),
    )
    whole = sent_bytes(simulation, cut_ns)
    assert sent_bytes(cut.simulate(audited=False), cut_ns)[: len(whole)] == whole


def planned(simulation: Simulation) -> Any:
    return getattr(simulation.events[0][1], "queries")  # noqa: B009 - the first event is SessionStarted


@pytest.mark.slow
@examples(150)
@given(scenarios(calm=True))
def test_lockstep_order_knows_no_service_times(scenario: Scenario) -> None:
    """However long an agent takes, what it meets and in which order is the same."""
    config = scenario.config | {"clock": "lockstep", "answer_timeout_ns": seconds(600), "credit": 32}
    config |= {"drain_timeout_ns": seconds(600), "hang_timeout_ns": seconds(600)}
    base = replace(scenario, config=config, answers=tuple((t, 0.1, f) for t, _, f in scenario.answers))
    slower = replace(
        base,
        observe_s=(1.0, 0.2),
        answers=tuple((text, 0.7, fails) for text, _, fails in base.answers),
        decoded_s=(0.3,),
    )
    assert course(base.simulate()) == course(slower.simulate())


def course(simulation: Simulation) -> list[tuple[int, str, object]]:
    """Media time and content of all that the server sent, without numbers."""
    return [
        (
            exchange.at.media_ns,
            type(exchange.message).__name__,
            msgspec.structs.replace(exchange.message, seq=0, ack=0),
        )
        for exchange in simulation.exchanges
        if exchange.sender == "server"
    ]


@pytest.mark.slow
@examples(150)
@given(scenarios(calm=True))
def test_skip_is_realtime_in_media_time(scenario: Scenario) -> None:
    """Everything but bare receptions happens at the same media time and in the same order."""
    scenario = replace(scenario, decoded_s=())
    courses = []
    for clock in ("realtime", "skip"):
        config = scenario.config | {"clock": clock, "rate": 1.0}
        simulation = replace(scenario, config=config, ticks=False).simulate()
        courses.append(
            [
                (exchange.at.media_ns, msgspec.structs.replace(exchange.message, seq=0, ack=0))
                for exchange in simulation.exchanges
                if not isinstance(exchange.message, wire.Ack | wire.Welcome)
            ]
        )
    assert courses[0] == courses[1]


@pytest.mark.slow
@examples(150)
@given(scenarios(calm=True))
def test_patient_sessions_complete_with_every_query_answered_or_failed(scenario: Scenario) -> None:
    """Time for everybody and nothing from outside: only an agent that raises loses a query."""
    patient = {
        name: seconds(10_000)
        for name in ("answer_timeout_ns", "hang_timeout_ns", "drain_timeout_ns", "credit_timeout_ns")
    }
    simulation = replace(scenario, config=scenario.config | patient).simulate()
    _, ended = simulation.events[-1]
    assert isinstance(ended, SessionEnded) and ended.reason == "completed" and ended.unsettled_frames == 0
    failed = {event.turn for _, event in simulation.events if isinstance(event, TurnEnded) and event.error}
    turns: dict[str, set[int]] = {}
    for _, event in simulation.events:
        if isinstance(event, ProbeSent):
            turns.setdefault(event.query, set()).add(event.turn)
    for _, event in simulation.events:
        if isinstance(event, ChainClosed):
            assert event.outcome == ("failed" if turns[event.query] & failed else "answered")
    reads = [event for _, event in simulation.events if isinstance(event, ProbeRead)]
    assert len(reads) == sum(map(len, turns.values())) - len(failed)
