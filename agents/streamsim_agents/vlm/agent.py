"""The ``vlm`` agent: any image-text-to-text checkpoint of transformers, by folder or hub id.

Frames are encoded and prefilled as they come, so that a question costs its own tokens only; where the
architecture or the installed transformers don't allow that, the agent says so and answers a slower
way. Status and cause probes branch off the same state as the task probe and leave no trace in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from streamsim_agents.agent import Agent, Frame, Query, SessionInfo, Turn
from streamsim_agents.memory.entry import Entry
from streamsim_agents.memory.memory import Memory
from streamsim_agents.memory.recent import Recent
from streamsim_agents.memory.registry import make_memory
from streamsim_agents.vlm.profile import (
    CHOICE_TOKENS,
    GENERIC,
    Dtype,
    ProfileError,
    Quantization,
    Streaming,
    find_profile,
    not_trusted,
)

_MODES = {"plain": 0.0, "features": 1.0, "prefill": 2.0}


class VLM(Agent):
    """A vision language model that watches.

    Arguments:
        model: a checkpoint folder or a hub id
        memory: all (the latest up to the frame cap), recent,frames=4, uniform,budget=128,
            long_short,window=32,slots=16, kv_retrieval,local=32,top=32 or package.module:Class; settings
            may be left out
        streaming: auto prefills frames as they come if that is exact, on refuses to run otherwise, off
            answers the plain way
        max_frames: frame cap, 0 for the profile's
        dtype: of the weights; auto is bfloat16 on a GPU and float32 on a CPU
        device: auto, cpu, cuda or cuda:N; auto shares the GPUs out among the lanes
        attn: attn_implementation of transformers, such as sdpa or eager; auto is its default
        quantization: of the weights, by bitsandbytes on a GPU
        trust_remote_code: run the code that comes with the checkpoint
        open_tokens: longest answer that is no letter, in tokens
    """

    def __init__(
        self,
        model: str,
        memory: str = "all",
        streaming: Streaming = "auto",
        max_frames: int = 0,
        dtype: Dtype = "auto",
        device: str = "auto",
        attn: str = "auto",
        quantization: Quantization = "none",
        trust_remote_code: bool = False,
        open_tokens: int = 256,
    ) -> None:
        try:
            from streamsim_agents.vlm.load import load
        except ImportError as error:
            raise ProfileError(
                f"the vlm agent needs torch and transformers ({error}): pip install 'streamsim[vlm]'"
            ) from error
        loaded = load(
            model,
            dtype=dtype,
            device=device,
            attn=attn,
            quantization=quantization,
            trust_remote_code=trust_remote_code,
        )
        self._set_up(loaded, memory, streaming, max_frames, open_tokens)

    @classmethod
    def of(
        cls,
        loaded: Any,
        *,
        memory: str = "all",
        streaming: Streaming = "auto",
        max_frames: int = 0,
        open_tokens: int = 256,
    ) -> VLM:
        """An agent for a model that is loaded already (``load.Loaded``)."""
        agent = cls.__new__(cls)
        agent._set_up(loaded, memory, streaming, max_frames, open_tokens)
        return agent

    @classmethod
    def check_arguments(cls, **arguments: Any) -> None:
        """Refuse a checkpoint that is not there or not trusted, settings and libraries that are missing."""
        profile = find_profile(arguments["model"])
        if profile.remote and not arguments.get("trust_remote_code"):
            raise not_trusted(arguments["model"])
        if (memory := arguments.get("memory", "all")) != "all":
            make_memory(memory)
        for name in ("max_frames", "open_tokens"):
            if arguments.get(name, 0) < 0:
                raise ProfileError(f"{name} must not be negative, got {arguments[name]}")
        missing = [name for name in ("torch", "torchvision", "transformers") if find_spec(name) is None]
        if missing:
            raise ProfileError(f"it needs {', '.join(missing)}: pip install 'streamsim[vlm]'")

    def _set_up(
        self, loaded: Any, memory: str, streaming: Streaming, max_frames: int, open_tokens: int
    ) -> None:
        from streamsim_agents.vlm.assembly import assemble

        self._profile = loaded.profile
        self._tokenizer = getattr(loaded.processor, "tokenizer", loaded.processor)
        self._open_tokens = open_tokens
        cap = max_frames or self._profile.max_frames
        self._memory: Memory = Recent(frames=cap) if memory == "all" else make_memory(memory)
        self._stream, self._verdict = assemble(loaded, self._memory, streaming, cap)
        self._session = 0
        self._resumed = False
        self._device: str = loaded.model.device.type
        self._seen = 0

    # ------------------------------------------------------------------------------ the interface

    def begin(self, session: SessionInfo) -> None:
        """Begin with an empty memory."""
        self._session, self._seen, self._resumed = 0, 0, False
        self._memory.clear()
        self._stream.begin(session.fps)

    def observe(self, frame: Frame) -> None:
        """Encode and prefill the frame."""
        from streamsim_agents.vlm.load import out_of_memory_hint

        with out_of_memory_hint("taking a frame in"):
            if self._resumed:
                self._stream.next_session()
                self._session, self._resumed = self._session + 1, False
            self._seen += 1
            self._stream.observe(self._entry(frame.media_ns, frame.data))
            self._synchronise()

    def answer(self, query: Query, turn: Turn) -> Iterator[str]:
        """Answer greedily from a branch of the present state."""
        from streamsim_agents.vlm.engine import Cancelled
        from streamsim_agents.vlm.load import out_of_memory_hint

        with out_of_memory_hint("answering a query"):
            try:
                with self._stream.utterance(query.text, query.media_ns, lambda: turn.cancelled) as utterance:
                    turn.mark("prefilled")
                    yield from self._speak(utterance, query, turn)
            except Cancelled:
                return

    def end(self) -> None:
        """Complete what the memory is to keep."""
        self._stream.finish()

    def save(self, folder: Path) -> None:
        """The memory, the frames that wait for their step, and the number of the session."""
        self._memory.save(folder)
        times = []
        for index, entry in enumerate(self._stream.waiting()):
            assert isinstance(entry.value, bytes)
            (folder / f"waiting.{index}").write_bytes(entry.value)
            times.append(entry.first_ns)
        state = {"session": self._session, "waiting": times}
        (folder / "vlm.json").write_text(json.dumps(state), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Take over what ``save`` wrote: its session is gone on with until a first frame begins the next."""
        from streamsim_agents.vlm.load import out_of_memory_hint

        self._memory.load(folder)
        state = json.loads((folder / "vlm.json").read_text(encoding="utf-8"))
        self._session, self._resumed = int(state["session"]), True
        waiting = [
            self._entry(at, (folder / f"waiting.{index}").read_bytes())
            for index, at in enumerate(state["waiting"])
        ]
        with out_of_memory_hint("prefilling the memory"):
            self._stream.resume(self._session, waiting)

    def stats(self) -> dict[str, float]:
        """Sizes, work done again, and ``streaming``: 2 prefill, 1 encoded frames kept, 0 plain."""
        return {
            "memory_bytes": float(self._memory.nbytes()),
            "frames_seen": float(self._seen),
            "streaming": _MODES[self._verdict.mode],
            **self._stream.stats(),
        }

    def describe(self) -> dict[str, str]:
        """Versions, checkpoint, and how frames are taken in, with the reason where it isn't ahead."""
        import torch
        import transformers

        return {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "model": self._profile.checkpoint,
            "architecture": self._profile.model_type or GENERIC.stamps,
            "streaming": self._verdict.mode,
            **({"streaming_reason": self._verdict.reason} if self._verdict.reason else {}),
        }

    # ------------------------------------------------------------------------------------- parts

    def _entry(self, media_ns: int, data: bytes) -> Entry:
        return Entry(session=self._session, first_ns=media_ns, last_ns=media_ns, value=data)

    def _speak(self, utterance: Any, query: Query, turn: Turn) -> Iterator[str]:
        from streamsim_agents.vlm.speech import speak, speak_after_thought

        letter = query.kind == "choice" or query.probe != "task"
        if callable(utterance):  # a model of its own code gives whole answers
            yield utterance(CHOICE_TOKENS if letter else self._open_tokens)
            return
        if self._profile.thinking:
            answer = (
                self._profile.answer_tokens if letter else max(self._profile.answer_tokens, self._open_tokens)
            )
            yield from speak_after_thought(
                utterance, self._tokenizer, turn, thinking=self._profile.thinking, answer_tokens=answer
            )
        else:
            limit = CHOICE_TOKENS if letter else self._open_tokens
            yield from speak(utterance, self._tokenizer, turn, limit)

    def _synchronise(self) -> None:
        """Wait for the device: a frame is settled when it is really taken in."""
        if self._device == "cuda":
            import torch

            torch.cuda.synchronize()
