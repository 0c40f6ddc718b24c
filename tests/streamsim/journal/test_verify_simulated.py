"""Whatever happens between a session and its agent, an honest journal is verified."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsim.events import Instant
from streamsim.journal.compare import compare_journals
from streamsim.journal.read import read_journal
from streamsim.journal.verify import verify_run
from streamsim.session import Session
from streamsim.simulation import SimulatedAgent, Simulation, Utterance, say
from streamsim.testing import seconds, tiny_query, tiny_simulation
from streamsim_protocol import messages as wire
from tests.streamsim.journal.simulated_run import write_run

MS = 1_000_000

durations = st.sampled_from([0, 1, 150 * MS, 400 * MS, 1_000 * MS, 2_300 * MS])
utterances = st.builds(
    lambda service_ns, text, error: Utterance(
        service_ns=service_ns, pieces=((service_ns // 2, text), (service_ns, ".")), error=error
    ),
    durations,
    st.sampled_from(["A", "C", "D", "no idea", ""]),
    st.sampled_from([None, None, None, "Traceback: answer"]),
)


def interrupt(session: Session, now: Instant) -> None:
    session.interrupt(now)


@st.composite
def simulations(draw: st.DrawFn) -> tuple[Simulation, int]:
    """A session played to whatever end, and how many queries it had."""
    at_s: Sequence[float] = draw(st.lists(st.sampled_from([0, 0.5, 1, 2, 2.0004, 3]), max_size=4))
    kinds: list[wire.QueryKind] = draw(
        st.lists(st.sampled_from(["choice", "choice", "open"]), min_size=len(at_s), max_size=len(at_s))
    )
    said = {turn: draw(utterances) for turn in range(1, 13)}
    work = [draw(durations) for _ in range(5)]
    frames: wire.FramePolicy = draw(st.sampled_from(["all", "latest"]))
    agent = SimulatedAgent(
        observe=lambda k: work[k],
        answer=lambda probe: said[probe.turn],
        frames=frames,
        capabilities=draw(st.sampled_from([(), ("ticks",)])),
        failing=draw(st.sets(st.integers(0, 4), max_size=2)),
    )
    late_ns = draw(durations)
    clock: wire.ClockMode = draw(st.sampled_from(["realtime", "skip", "lockstep", "scaled"]))
    queries = [
        tiny_query(f"q{n}", at, kind=kind) for n, (at, kind) in enumerate(zip(at_s, kinds, strict=True))
    ]
    simulation = tiny_simulation(
        queries,
        agent,
        samples=5,
        without_picture=draw(st.sampled_from([(), (0,), (0, 1)])),
        decoded_ns=lambda k: late_ns * k // 2,
        to_agent_ns=draw(st.sampled_from([0, 3 * MS])),
        to_server_ns=draw(st.sampled_from([0, 2 * MS])),
        audited=False,
        clock=clock,
        rate=draw(st.sampled_from([0.5, 3.0])) if clock == "scaled" else 1.0,
        history=draw(st.sampled_from(["frozen", "live"])),
        chain=draw(st.sampled_from(["full", "full", "task"])),
        credit=draw(st.sampled_from([1, 32])),
        answer_timeout_ns=draw(st.sampled_from([seconds(1), seconds(30)])),
    )
    if draw(st.integers(0, 5)) == 0:
        simulation.schedule(draw(st.integers(1, 4_000)) * MS, interrupt)
    return simulation.run(), len(queries)


@pytest.mark.slow
@given(simulations())
@settings(max_examples=60, deadline=None)
def test_an_honest_journal_is_verified(played: tuple[Simulation, int]) -> None:
    simulation, queries = played
    with tempfile.TemporaryDirectory() as folder:
        journal = write_run(Path(folder) / "run", simulation, queries)
        proof = verify_run(journal.parents[1])
        assert proof.offence is None, str(proof.offence)
        assert proof.sessions[0].lines == len(simulation.events)
        assert proof.sessions[0].sealed == simulation.session.ended
        assert proof.prefix_only != simulation.session.ended
        assert compare_journals(read_journal(journal), read_journal(journal)) is None


def test_gaps_and_late_decoder_are_verified(tmp_path: Path) -> None:
    agent = SimulatedAgent(observe=lambda k: 10 * MS, answer=lambda probe: say("C", 20 * MS))
    simulation = tiny_simulation(
        [tiny_query("early", 0.5), tiny_query("late", 3.0)],
        agent,
        samples=4,
        without_picture=(0,),
        decoded_ns=lambda k: 700 * MS * k,
        clock="skip",
    ).run()
    journal = write_run(tmp_path / "run", simulation, 2)
    proof = verify_run(tmp_path / "run")
    assert proof.offence is None and not proof.prefix_only
    assert (proof.sessions[0].frames, proof.sessions[0].probes) == (3, 6)
    assert read_journal(journal).complete
