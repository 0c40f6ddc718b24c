"""Putting a loaded model and a memory together into a stream."""

from __future__ import annotations

from streamsim_agents.memory.memory import Memory
from streamsim_agents.vlm.check import Verdict, answer_dummy, check, make_engine
from streamsim_agents.vlm.family import FAMILIES, Family
from streamsim_agents.vlm.load import Loaded
from streamsim_agents.vlm.profile import ProfileError, Streaming
from streamsim_agents.vlm.prompt import Prompter
from streamsim_agents.vlm.remote import RemoteStream, remote_stream
from streamsim_agents.vlm.retrieval import KeyStream
from streamsim_agents.vlm.stream import FrameStream, PlainStream, Stream, TokenStream
from streamsim_agents.vlm.view import View


def assemble(
    loaded: Loaded, memory: Memory, streaming: Streaming, max_frames: int
) -> tuple[Stream | RemoteStream, Verdict]:
    """The stream for ``memory``, and what the model can do; answers one dummy question on the way.

    Raises ProfileError where streaming is demanded and cannot be, or the memory doesn't fit the model.
    """
    if loaded.profile.remote:
        return remote_stream(loaded, memory, streaming, max_frames), Verdict(
            mode="plain", reason="the model's own code takes all frames at once"
        )
    family = FAMILIES.get(loaded.profile.model_type, GenericFamily)(loaded.model, loaded.processor)
    prompter = Prompter(family, loaded.profile)
    view = View(family, loaded.profile.unit, steps=max_frames + 8)
    if streaming == "off":
        verdict = Verdict(mode="plain", reason="streaming=off")
    elif isinstance(family, GenericFamily):
        verdict = Verdict(mode="plain", reason=f"unknown architecture {loaded.profile.model_type!r}")
    else:
        verdict = check(family, loaded.profile, prompter)
    if streaming == "on" and verdict.mode != "prefill":
        raise ProfileError(
            f"streaming=on was asked for, but frames cannot be prefilled ahead: {verdict.reason}"
        )
    if verdict.mode == "plain":
        answer_dummy(family, loaded.profile, prompter)
        if memory.kind != "frames":
            raise ProfileError(
                f"this memory needs the model's inner state, which is out of reach: {verdict.reason}"
            )
        return PlainStream(memory, view, prompter, max_frames, family), verdict
    engine = make_engine(family)
    if memory.kind == "tokens":
        return TokenStream(memory, view, prompter, max_frames, engine), verdict
    if memory.kind == "keys":
        return KeyStream(memory, view, prompter, max_frames, engine), verdict
    return FrameStream(memory, view, prompter, max_frames, engine), verdict


class GenericFamily(Family):
    """An architecture that is not known: images behind lines of text, nothing ahead."""

    model_type = ""
    takes = "images"
    causal = False
