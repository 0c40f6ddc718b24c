"""Every architecture through a live session: three probes, answered as the same frames are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch and transformers: pip install 'streamsim[vlm]'")

from streamsim.events import ProbeSent, TextReceived, TurnEnded
from streamsim.journal.folder import read_last_attempts
from streamsim_agents.agent import Frame
from tests.agents.vlm.rotating import make
from tests.agents.vlm.scene import ARCHITECTURES, probe, say, session
from tests.end_to_end.dataset_for_tests import write_one_clip
from tests.end_to_end.harness import Simulator, events_of

HERE = Path(__file__).parent


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Simulator]:
    """The command line in a folder of its own; nothing may be left running."""
    simulator = Simulator(tmp_path)
    yield simulator
    left = simulator.wait_for_processes()
    simulator.kill_processes()
    assert not left, f"left behind: {left}"


@pytest.mark.slow
def test_three_probes_of_every_architecture(
    checkpoint: Callable[[str], Path], simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for name in ARCHITECTURES:
        (models / name).symlink_to(checkpoint(name))
    dataset = write_one_clip(tmp_path / "dataset", len(ARCHITECTURES))
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[2]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    done = simulator.call(
        *("run", dataset, "--out", "r", "--json", "--clock", "lockstep", "--encoding", "png"),
        *("--agent", "tests.agents.vlm.rotating:Rotating", "--agent-arg", f"folder={models}"),
        python_path=HERE / "operators",
    )
    assert done.code == 0, done.err
    assert done.report["complete"] == len(ARCHITECTURES)
    assert done.report["outcomes"]["answered"] == 4 * len(ARCHITECTURES)
    pictures = tmp_path / "pictures"
    assert simulator.call("frames", next(dataset.rglob("*.mp4")), "-o", pictures).code == 0
    files = [path.read_bytes() for path in sorted(pictures.iterdir())]
    played = set()
    for journal in read_last_attempts(simulator.folder / "r"):
        probes = {event.turn: event for _, event in events_of(journal, ProbeSent)}
        assert sorted((event.query, event.probe) for event in probes.values()) == sorted(
            (query, step) for query in ("q1", "q2", "q3", "q4") for step in ("task", "status", "cause")
        )
        assert all(event.reason == "finished" for _, event in events_of(journal, TurnEnded))
        texts = dict.fromkeys(probes, "")
        for _, event in events_of(journal, TextReceived):
            texts[event.turn] += event.text
        name = texts[min(texts)].partition(":")[0]
        played.add(name)
        agent = make(checkpoint(name))
        agent.begin(session())
        for k, data in enumerate(files):
            agent.observe(Frame(k=k, media_ns=k * 10**9, data=data))
            for turn, sent in probes.items():
                seen_last = min(sent.media_ns // 10**9, len(files) - 1)
                if seen_last == k and sent.probe != "status":
                    prefix = f"{name}: " if sent.probe == "task" else ""
                    assert texts[turn] == prefix + say(agent, probe(sent.text, step=sent.probe)), (name, turn)
    assert played == set(ARCHITECTURES)
