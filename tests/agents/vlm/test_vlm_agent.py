"""The vlm agent on each architecture: its folder in, frames in, three probes out."""

# ruff: noqa: E402
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch and transformers: pip install 'streamsim[vlm]'")

from streamsim_agents.registry import make_agent
from streamsim_agents.testing import check_agent
from streamsim_agents.vlm.agent import VLM
from streamsim_agents.vlm.load import Loaded, OutOfMemory
from streamsim_agents.vlm.profile import ProfileError, Streaming
from tests.agents.vlm.scene import (
    ARCHITECTURES,
    CAUSAL,
    QUESTION,
    frame,
    offline_text,
    probe,
    say,
    session,
    turn,
)

Load = Callable[[str], Loaded]
STATUS = "Did you see it directly (A), or does it follow (B)?\nAnswer with the letter."


@pytest.fixture(scope="module")
def brief(loaded: Load) -> Load:
    """As ``loaded``, with a thought of 16 tokens where the architecture thinks."""

    def shorten(name: str) -> Loaded:
        model = loaded(name)
        return replace(
            model, profile=replace(model.profile, thinking=min(model.profile.thinking, 16), answer_tokens=8)
        )

    return shorten


def watch(agent: VLM, frames: range) -> VLM:
    agent.begin(session())
    for k in frames:
        agent.observe(frame(k))
    return agent


# ------------------------------------------------------------------------------------ the contract


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_it_keeps_the_contract(name: str, brief: Load) -> None:
    report = check_agent(lambda: VLM.of(brief(name), open_tokens=12))
    assert report.skipped == ()


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["recent,frames=3", "uniform,budget=4", "long_short,window=2,slots=2"])
@pytest.mark.parametrize("name", ["qwen2_5_vl", "molmo2", "internvl"])
def test_it_keeps_the_contract_with_any_memory(name: str, memory: str, brief: Load) -> None:
    assert check_agent(lambda: VLM.of(brief(name), memory=memory, open_tokens=12)).skipped == ()


def test_it_keeps_the_contract_with_a_memory_of_one_s_own(brief: Load) -> None:
    memory = "examples.custom_memory:Novel,frames=3,threshold=1"
    assert check_agent(lambda: VLM.of(brief("qwen2_vl"), memory=memory, open_tokens=12)).skipped == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen3_vl", "glm4v", "internvl", "video_llama_3"])
def test_it_keeps_the_contract_with_retrieval(name: str, brief: Load) -> None:
    memory = "kv_retrieval,local=1,top=1"
    assert check_agent(lambda: VLM.of(brief(name), memory=memory, open_tokens=12)).skipped == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3_vl", "smolvlm", "glm4v"])
def test_the_plain_way_keeps_the_contract(name: str, brief: Load) -> None:
    assert check_agent(lambda: VLM.of(brief(name), streaming="off", open_tokens=12)).skipped == ()


# ------------------------------------------------------------------------------------- its answers


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_from_folder_to_answer(name: str, checkpoint: Callable[[str], Path], loaded: Load) -> None:
    """Loaded by the name and arguments of the command line; eight tokens for a letter, as generate says."""
    agent = make_agent("vlm", {"model": str(checkpoint(name)), "device": "cpu", "dtype": "float32"})
    assert isinstance(agent, VLM)
    watch(agent, range(5))
    expected_mode = 2.0 if name in CAUSAL else 1.0
    assert agent.stats()["streaming"] == expected_mode
    assert agent.describe()["streaming"] == ("prefill" if name in CAUSAL else "features")
    if name == "glm4v":  # it thinks first; see test_speech
        return
    assert say(agent) == offline_text(loaded(name), range(5))
    status = say(agent, probe(STATUS, step="status"))
    assert status == offline_text(loaded(name), range(5), question=STATUS)
    assert say(agent) == offline_text(loaded(name), range(5))


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_all_ways_say_the_same(name: str, brief: Load) -> None:
    """Prefilled ahead, or plainly through ``generate``; below the frame cap and above it."""
    modes: tuple[Streaming, Streaming] = ("auto", "off")
    agents = [VLM.of(brief(name), streaming=mode, max_frames=6) for mode in modes]
    for agent in agents:
        agent.begin(session())
    for k in range(9):
        for agent in agents:
            agent.observe(frame(k))
        if k in (0, 4, 5, 8):
            assert say(agents[0]) == say(agents[1]), f"after {k + 1} frames"
    assert agents[1].stats()["streaming"] == 0.0


def test_above_the_cap_the_kept_frames_are_prefilled_anew(brief: Load) -> None:
    agent = watch(VLM.of(brief("internvl"), max_frames=4), range(4))
    say(agent)
    assert agent.stats()["again_tokens"] == 0
    agent.observe(frame(4))
    say(agent)
    cost = agent.stats()
    # its line and its picture, four times: the head alone was in the cache
    assert cost["again_tokens"] > 3 * 4
    assert cost["again_ms"] > 0
    say(agent)
    assert agent.stats()["again_tokens"] == 0
    assert agent.stats()["encodings"] == 5  # each frame once


def test_open_answers_are_as_long_as_asked(brief: Load, loaded: Load) -> None:
    agent = watch(VLM.of(brief("qwen2_vl"), open_tokens=20), range(3))
    assert say(agent, probe(kind="open")) == offline_text(loaded("qwen2_vl"), range(3), tokens=20)
    assert say(agent, probe(kind="open", step="status")) == offline_text(loaded("qwen2_vl"), range(3))


def test_a_new_session_forgets(brief: Load, loaded: Load) -> None:
    agent = watch(VLM.of(brief("qwen3_vl")), range(7))
    watch(agent, range(2))
    assert say(agent) == offline_text(loaded("qwen3_vl"), range(2))


# -------------------------------------------------------------------------------------- cancelling


@pytest.mark.parametrize("streaming", ["auto", "off"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_cancel_stops_within_one_token(name: str, streaming: Streaming, brief: Load) -> None:
    agent = watch(VLM.of(brief(name), streaming=streaming, open_tokens=400), range(2))
    model = brief(name).model
    runs: list[int] = []
    hook = model.get_output_embeddings().register_forward_hook(lambda *_: runs.append(1))
    mine = turn()
    try:
        pieces = agent.answer(probe(kind="open"), mine)
        for _ in pieces:
            break
        before = len(runs)
        mine.cancel("cancelled")
        assert list(pieces) == []
    finally:
        hook.remove()
    # ``generate`` runs beside us: one token waits to be taken, one is in the making
    assert len(runs) - before <= (1 if streaming == "auto" else 2)
    assert say(agent) == say(watch(VLM.of(brief(name)), range(2)))


def test_cancel_while_kept_frames_are_prefilled(brief: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsim_agents.vlm.engine.CHUNK_TOKENS", 8)
    agent = watch(VLM.of(brief("qwen2_vl"), max_frames=8), range(9))
    mine = turn()
    mine.cancel("timed_out")
    assert list(agent.answer(probe(), mine)) == []
    assert "prefilled" not in mine.marks
    fresh = watch(VLM.of(brief("qwen2_vl"), streaming="off", max_frames=8), range(9))
    assert say(agent) == say(fresh)


# ------------------------------------------------------------------------------------ memory

MEMORIES = ["all", "uniform,budget=4", "long_short,window=2,slots=2", "kv_retrieval,local=2,top=2"]


@pytest.mark.slow
def test_a_memory_restored_in_another_process_answers_alike(
    checkpoint: Callable[[str], Path], brief: Load, tmp_path: Path
) -> None:
    """Saved after one session; the next one, with two more frames, here and in a fresh process."""
    jobs, expected = [], []
    for name in ARCHITECTURES:
        for memory in MEMORIES if name in ("qwen2_5_vl", "qwen3_vl") else ["all"]:
            agent = watch(VLM.of(brief(name), memory=memory), range(5))
            agent.end()
            folder = tmp_path / f"{name}-{memory}"
            folder.mkdir()
            agent.save(folder)
            agent.begin(session())
            agent.load(folder)
            answers = [say(agent)]
            for k in range(2):
                agent.observe(frame(k))
            answers.append(say(agent))
            assert answers[0] != answers[1]
            expected.append(answers)
            jobs.append([name, str(checkpoint(name)), memory, str(folder)])
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    done = subprocess.run(
        [sys.executable, "-m", "tests.agents.vlm.restore", str(tmp_path / "jobs.json")],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize("memory", MEMORIES)
def test_an_odd_frame_is_not_lost_in_a_saved_memory(memory: str, brief: Load, tmp_path: Path) -> None:
    agent = watch(VLM.of(brief("qwen3_vl"), memory=memory), range(3))
    answer = say(agent)
    agent.save(tmp_path)
    other = VLM.of(brief("qwen3_vl"), memory=memory)
    other.begin(session())
    other.load(tmp_path)
    assert say(other) == answer


def test_a_window_that_holds_everything_is_exact(brief: Load, loaded: Load) -> None:
    for name in sorted({*CAUSAL} - {"qwen3_5", "video_llama_3", "glm4v"}):
        agent = watch(VLM.of(brief(name), memory="kv_retrieval,local=9,top=4"), range(7))
        assert say(agent) == offline_text(loaded(name), range(7)), name
        assert agent.stats()["found"] == 0


def test_retrieved_frames_are_attended_to(brief: Load) -> None:
    """With more found, the answer's logits are others; the window in the cache stays as small."""
    few, many = (
        watch(VLM.of(brief("qwen2_vl"), memory=f"kv_retrieval,local=2,top={top}"), range(12))
        for top in (0, 3)
    )
    answers = [say(agent, probe(kind="open")) for agent in (few, many)]
    assert answers[0] != answers[1]
    assert (few.stats()["found"], many.stats()["found"]) == (0, 3)
    assert few.stats()["cache_tokens"] == many.stats()["cache_tokens"]


def test_a_summary_is_shown_with_its_time(brief: Load) -> None:
    agent = watch(VLM.of(brief("qwen2_5_vl"), memory="long_short,window=2,slots=2"), range(12))
    say(agent)
    stream: Any = agent._stream
    ids = [token for piece in stream.engine._pieces for token in getattr(piece, "ids", ())]
    text = brief("qwen2_5_vl").processor.tokenizer.decode(ids)
    assert "A summary of seconds 0.0 to 7.0:" in text
    assert "The latest, seconds 8.0 to 11.0:" in text


@pytest.mark.parametrize("name", ["molmo2", "qwen3_5"])
def test_retrieval_is_refused_where_it_does_not_fit(name: str, brief: Load) -> None:
    with pytest.raises(ProfileError, match=f"kv_retrieval doesn't fit '{name}'"):
        VLM.of(brief(name), memory="kv_retrieval")


# ------------------------------------------------------------------------------ what can go wrong


@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen3_5", "molmo2"])
def test_out_of_memory_costs_one_query(name: str, brief: Load) -> None:
    """A layer asks for more than any machine has: the real allocator's refusal."""
    agent = watch(VLM.of(brief(name)), range(3))
    before = say(agent)
    family: Any = agent._stream.engine.family  # type: ignore[union-attr]
    hook = family.language.layers[-1].register_forward_pre_hook(lambda *_: torch.empty(1 << 60))
    with pytest.raises(OutOfMemory, match=r"while answering a query: show the model fewer frames"):
        say(agent)
    if name != "molmo2":
        with pytest.raises(OutOfMemory, match="while taking a frame in"):
            agent.observe(frame(3))
    hook.remove()
    if name == "molmo2":
        assert say(agent) == before
        return
    agent.observe(frame(4))
    fresh = VLM.of(brief(name))
    watch(fresh, range(4))
    fresh.observe(frame(4))
    assert say(agent) == say(fresh)


def test_streaming_on_refuses_what_would_not_stream(brief: Load) -> None:
    VLM.of(brief("qwen2_vl"), streaming="on")
    with pytest.raises(ProfileError, match=r"cannot be prefilled ahead: vision tokens see the question"):
        VLM.of(brief("molmo2"), streaming="on")


def test_an_architecture_that_nobody_described_answers_the_plain_way(brief: Load) -> None:
    model = brief("smolvlm")
    unknown = replace(model, profile=replace(model.profile, model_type="next_year"))
    agent = watch(VLM.of(unknown), range(2))
    assert agent.describe()["streaming_reason"] == "unknown architecture 'next_year'"
    assert isinstance(say(agent), str)
    with pytest.raises(ProfileError, match="needs the model's inner state"):
        VLM.of(unknown, memory="long_short")


def test_the_first_text_is_no_echo_of_the_prompt(brief: Load) -> None:
    """``generate`` hands its streamer the prompt first; that is not the answer's beginning."""
    agent = watch(VLM.of(brief("qwen2_vl"), streaming="off"), range(2))
    said = say(agent)
    assert QUESTION not in said and "assistant" not in said
