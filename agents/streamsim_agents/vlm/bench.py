"""``bench.py models``: a real model's time to first token against how much it has seen, both ways.

One run measures, on the same model and the same frames: the plain way (``generate`` over everything,
as an offline script does it) and streaming prefill, both as agents from the arrival of a question to
the first generated token; how often the two say the same; what three probes cost beside one; what
each memory weighs and costs to write; and, with ``--realtime``, whether one session keeps up with the
clock. Weights are random unless ``--model`` names a checkpoint: for times and sizes they don't matter.

The prepared run for a GPU is ``bench.py models --shape qwen2_5_vl_7b --device cuda --dtype bfloat16
--frames 45,256 --size 448x448 --realtime 20``; the default is the same at a size for a CPU. What grows
there with larger frames is attention: a question's own tokens look at the whole history.
"""

from __future__ import annotations

import argparse
import io
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from streamsim_agents.agent import Frame, Query, SessionInfo, Turn
from streamsim_agents.vlm.agent import VLM
from streamsim_agents.vlm.profile import Streaming, for_model_type

QUESTIONS = (
    "What is in view now? A. a cup B. a knife C. a pan D. nothing\nAnswer with the letter.",
    "Did you see that directly? A. seen B. it follows C. not seen D. ambiguous\nAnswer with the letter.",
    "Why can it not be told? A. missing B. partial C. blurred D. ambiguous\nAnswer with letters.",
)
MEMORIES = ("all", "recent,frames=4", "uniform,budget=64", "long_short,window=16,slots=16", "kv_retrieval")
CYCLE = 8
"""So many pictures make up the stream, over and over."""
FLAT, FASTER, FASTER_AT, PROBES = 1.5, 10.0, 64, 1.3
"""Targets: growth of the first token's time, its ratio to the plain way at so many frames, three probes
with their history beside one."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found. ``lines`` are for people, ``figures`` for ``--json``."""

    met: bool
    lines: list[str]
    figures: dict[str, Any] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Model, device and sizes."""
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", help="a checkpoint folder or hub id (default: random weights of --shape)")
    model.add_argument("--shape", default="qwen2_5_vl", help="an architecture (tiny) or qwen2_5_vl_7b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    parser.add_argument("--frames", default="8,16,32,64,128,256", help="history lengths, separated by commas")
    parser.add_argument("--size", default="56x56", help="of the frames, WIDTHxHEIGHT")
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="of the plain way, five times as many of streaming; the best counts",
    )
    parser.add_argument("--threads", type=int, default=0, help="of torch on a CPU (default: its own choice)")
    parser.add_argument("--memories", default=";".join(MEMORIES), help="separated by semicolons")
    parser.add_argument("--memory-frames", type=int, default=96, help="that each memory is shown")
    parser.add_argument(
        "--realtime", type=float, default=0.0, help="seconds of a session at one frame a second"
    )
    parser.add_argument("--no-targets", action="store_true", help="measure only, and exit with 0")


def measure(args: argparse.Namespace) -> Report:
    """Time to first token against history length: plain generate and streaming prefill in one run."""
    bench = _Bench(args)
    lengths = [int(length) for length in args.frames.split(",")]
    table = bench.first_tokens(lengths)
    probes = bench.probes(min(max(lengths), FASTER_AT))
    memories = bench.memories([name for name in args.memories.split(";") if name], args.memory_frames)
    figures: dict[str, Any] = {
        "model": bench.about(),
        "first_token": table,
        "three_probes_over_one": probes,
        "memories": memories,
    }
    if args.realtime:
        figures["realtime"] = bench.realtime(args.realtime)
    verdicts = _verdicts(table, probes, figures.get("realtime"))
    figures["targets"] = {name: met for name, met, _ in verdicts}
    lines = _lines(figures, [text for _, _, text in verdicts])
    return Report(met=args.no_targets or all(met for _, met, _ in verdicts), lines=lines, figures=figures)


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m streamsim_agents.vlm.bench``: the same without the rest of ``bench.py``."""
    import json

    parser = argparse.ArgumentParser(prog="streamsim_agents.vlm.bench", description=measure.__doc__)
    add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    report = measure(args)
    print(
        json.dumps({"met": report.met, "figures": report.figures}) if args.json else "\n".join(report.lines)
    )
    return 0 if report.met else 1


class _Bench:
    """One loaded model and its made-up stream."""

    def __init__(self, args: argparse.Namespace) -> None:
        from streamsim_agents.vlm.load import Loaded, choose_device, choose_dtype, load
        from streamsim_agents.vlm.shape import build

        if args.threads:
            import torch

            torch.set_num_threads(args.threads)
        started = time.perf_counter()
        if args.model:
            self.loaded = load(args.model, device=args.device, dtype=args.dtype)
        else:
            device = choose_device(args.device)
            dtype = str(choose_dtype(args.dtype, device)).removeprefix("torch.")
            model, processor = build(args.shape, device=device, dtype=dtype)
            self.loaded = Loaded(
                model=model, processor=processor, profile=for_model_type(model.config.model_type)
            )
        self.load_s = time.perf_counter() - started
        width, _, height = args.size.partition("x")
        self.size = int(width), int(height)
        self.rounds = args.rounds
        self._files = [_file(k, self.size) for k in range(CYCLE)]

    def about(self) -> dict[str, Any]:
        """What was measured, on what."""
        import torch
        import transformers

        model = self.loaded.model
        gpu = model.device.type == "cuda"
        return {
            "architecture": model.config.model_type,
            "parameters": sum(weight.numel() for weight in model.parameters()),
            "device": torch.cuda.get_device_name(model.device) if gpu else "cpu",
            "dtype": str(model.dtype).removeprefix("torch."),
            "size": list(self.size),
            "load_s": self.load_s,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def first_tokens(self, lengths: Sequence[int]) -> list[dict[str, float]]:
        """For each length: both ways' time to first token, the time to take a frame in, and agreement."""
        plain, streaming = self._agent("off", max(lengths)), self._agent("auto", max(lengths))
        for agent in (plain, streaming):
            self._begin(agent)
        seen, rows = 0, []
        for length in sorted(lengths):
            took = []
            for k in range(seen, length):
                plain.observe(self._frame(k))
                started = time.perf_counter()
                streaming.observe(self._frame(k))
                took.append(time.perf_counter() - started)
            seen = length
            row: dict[str, float] = {"frames": length, "observe_ms": 1e3 * median(took)}
            said: dict[str, list[str]] = {}
            for name, agent, rounds in (
                ("plain", plain, self.rounds),
                ("streaming", streaming, 5 * self.rounds),
            ):
                self._reset_peak()
                asked = [
                    _ask(agent, f"Question {at}. {QUESTIONS[at % len(QUESTIONS)]}") for at in range(rounds)
                ]
                row[f"{name}_ms"] = 1e3 * min(seconds for seconds, _ in asked)
                row[f"{name}_peak_bytes"] = self._peak()
                said[name] = [text for _, text in asked]
            same = [left == right for left, right in zip(said["plain"], said["streaming"], strict=False)]
            row["agreement"] = sum(same) / len(same)
            row["cache_bytes"] = streaming.stats().get("cache_bytes", 0.0)
            rows.append(row)
        return rows

    def probes(self, frames: int) -> float:
        """Time of a history of ``frames`` and a chain of three probes, over the same with one probe."""
        times: dict[int, list[float]] = {1: [], 3: []}
        for _ in range(self.rounds):
            for count in times:
                agent = self._agent("auto", frames)
                self._begin(agent)
                started = time.perf_counter()
                for k in range(frames):
                    agent.observe(self._frame(k))
                for question in QUESTIONS[:count]:
                    _ask(agent, question)
                times[count].append(time.perf_counter() - started)
        return min(times[3]) / min(times[1])

    def memories(self, names: Sequence[str], frames: int) -> list[dict[str, Any]]:
        """For each memory: bytes after an hour, time to take a frame in, time to answer, bytes saved."""
        rows: list[dict[str, Any]] = []
        for name in names:
            try:
                agent = self._agent("auto", max(frames, 1), memory=name)
            except ValueError as error:
                rows.append({"memory": name, "refused": str(error)})
                continue
            self._begin(agent)
            took, before, at = [], 0.0, max(1, frames - CYCLE * max(1, frames // (4 * CYCLE)))
            for k in range(frames):
                started = time.perf_counter()
                agent.observe(self._frame(k))
                took.append(time.perf_counter() - started)
                if k + 1 == at:
                    before = agent.stats()["memory_bytes"]
            now = agent.stats()["memory_bytes"]
            growth = (now - before) / (frames - at)
            answer, _ = _ask(agent, QUESTIONS[0])
            with TemporaryDirectory() as folder:
                agent.save(Path(folder))
                saved = sum(file.stat().st_size for file in Path(folder).iterdir())
            rows.append(
                {
                    "memory": name,
                    "bytes_after_an_hour": now + growth * (3600 - frames),
                    "observe_ms": 1e3 * median(took),
                    "first_token_ms": 1e3 * answer,
                    "bytes": now,
                    "saved_bytes": saved,
                }
            )
        return rows

    def realtime(self, seconds: float) -> dict[str, float]:
        """A session at one frame a second of real time, a chain of probes every five: its lateness."""
        agent = self._agent("auto", max(8, int(seconds)))
        self._begin(agent)
        for k in range(2):  # the first frames pay for what is done once
            agent.observe(self._frame(k))
        self._begin(agent)
        began = time.perf_counter()
        late, first = [], []
        for k in range(int(seconds)):
            time.sleep(max(0.0, began + k - time.perf_counter()))
            agent.observe(self._frame(k))
            late.append(time.perf_counter() - began - k)
            if k % 5 == 4:
                first += [_ask(agent, question)[0] for question in QUESTIONS]
        return {
            "frames": len(late),
            "largest_lateness_s": max(late),
            "first_token_ms": 1e3 * median(first) if first else 0.0,
        }

    def _agent(self, streaming: Streaming, frames: int, memory: str = "all") -> VLM:
        return VLM.of(self.loaded, memory=memory, streaming=streaming, max_frames=frames + frames % 2)

    def _begin(self, agent: VLM) -> None:
        agent.begin(SessionInfo(seed=1, clock="realtime", history="frozen", fps=1.0, size=self.size))

    def _frame(self, k: int) -> Frame:
        return Frame(k=k, media_ns=k * 10**9, data=self._files[k % len(self._files)])

    def _reset_peak(self) -> None:
        if self.loaded.model.device.type == "cuda":
            import torch

            torch.cuda.reset_peak_memory_stats()

    def _peak(self) -> float:
        """Most memory in use so far: the device's since the last reset, else the process's."""
        if self.loaded.model.device.type == "cuda":
            import torch

            return float(torch.cuda.max_memory_allocated())
        unit = 1 if sys.platform == "darwin" else 1024
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def _ask(agent: VLM, text: str) -> tuple[float, str]:
    """Seconds to the first generated token, and the whole answer."""
    query = Query(id="q1", kind="choice", probe="task", text=text, stem=text, options=(), media_ns=0)
    turn = Turn(1, media_ns=0, seen_media_ns=None)
    said = "".join(agent.answer(query, turn))
    return turn.marks["first_token"] / 1e9, said


def _file(k: int, size: tuple[int, int]) -> bytes:
    """A JPEG of a made-up scene: a soft ground and a bright disc that moves."""
    from PIL import Image, ImageDraw, ImageFilter

    ground = Image.effect_noise((size[0] // 8, size[1] // 8), 60 + k).resize(size).convert("RGB")
    ground = ground.filter(ImageFilter.GaussianBlur(3))
    left = (k * size[0]) // 20
    ImageDraw.Draw(ground).ellipse(
        (left, size[1] // 3, left + size[0] // 5, 2 * size[1] // 3), fill=(230, 60, 40)
    )
    file = io.BytesIO()
    ground.save(file, "JPEG", quality=85)
    return file.getvalue()


def _verdicts(
    table: Sequence[dict[str, float]], probes: float, realtime: dict[str, float] | None
) -> list[tuple[str, bool, str]]:
    first, last = table[0], table[-1]
    growth = last["streaming_ms"] / first["streaming_ms"]
    plain = last["plain_ms"] / first["plain_ms"]
    span = f"{first['frames']:g} to {last['frames']:g} frames"
    verdicts: list[tuple[str, bool, str]] = []
    if len(table) > 1:
        verdicts.append(
            ("flat", growth <= FLAT, f"{span}: {growth:.2f}× (target {FLAT}×), the plain way {plain:.1f}×")
        )
    for row in table:
        if row["frames"] == FASTER_AT:
            ratio = row["plain_ms"] / row["streaming_ms"]
            verdicts.append(
                (
                    "faster",
                    ratio >= FASTER,
                    f"at {FASTER_AT} frames: {ratio:.1f}× faster (target {FASTER:g}×)",
                )
            )
    verdicts.append(("probes", probes <= PROBES, f"three probes: {probes:.2f}× one (target {PROBES}×)"))
    if realtime is not None:
        late = realtime["largest_lateness_s"]
        verdicts.append(("realtime", late < 1.0, f"realtime at 1 FPS: {1e3 * late:.0f} ms late at most"))
    return verdicts


def _lines(figures: dict[str, Any], verdicts: Sequence[str]) -> list[str]:
    about = figures["model"]
    width, height = about["size"]
    return [
        f"{about['architecture']}, {about['parameters'] / 1e6:.2f} M parameters, {about['dtype']} on "
        f"{about['device']}, frames of {width}x{height}",
        f"torch {about['torch']}, transformers {about['transformers']}",
        "",
        "                       time to first token, ms                              peak MB",
        "frames     plain  streaming    ratio   same answer  observe ms  cache MB     plain  streaming",
        *(_first_token_line(row) for row in figures["first_token"]),
        "",
        "memory                          MB after an hour  observe ms  first token ms",
        *(_memory_line(row) for row in figures["memories"]),
        "",
        *verdicts,
    ]


def _first_token_line(row: dict[str, float]) -> str:
    ratio = row["plain_ms"] / row["streaming_ms"]
    return (
        f"{row['frames']:6.0f}{row['plain_ms']:10.1f}{row['streaming_ms']:11.1f}{ratio:8.1f}×"
        f"{row['agreement']:14.0%}{row['observe_ms']:12.1f}{row['cache_bytes'] / 1e6:10.2f}"
        f"{row['plain_peak_bytes'] / 1e6:10.0f}{row['streaming_peak_bytes'] / 1e6:11.0f}"
    )


def _memory_line(row: dict[str, Any]) -> str:
    if "refused" in row:
        return f"{row['memory']:32}{row['refused']}"
    return (
        f"{row['memory']:32}{row['bytes_after_an_hour'] / 1e6:16.2f}{row['observe_ms']:12.1f}"
        f"{row['first_token_ms']:16.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
