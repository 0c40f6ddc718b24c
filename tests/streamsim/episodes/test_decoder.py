"""The decoder as a process: what it writes, and that it never outlives its reader."""

from __future__ import annotations

import hashlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from streamsim.episodes.decoder import NICENESS, AnyLine, EndLine, ErrorLine, InfoLine, SampleRef
from streamsim.episodes.sampling import Sampling
from streamsim.episodes.video import VideoSampler, probe_video

COMMAND = (sys.executable, "-m", "streamsim.episodes.decoder")
MANY = ("--fps", "5000")
"""More lines than a pipe holds: the decoder waits for its reader."""


def decode(*arguments: str | Path) -> tuple[int, list[AnyLine], str]:
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, check=False, timeout=60)
    lines = [msgspec.json.decode(line, type=AnyLine) for line in done.stdout.splitlines()]
    return done.returncode, lines, done.stderr.decode()


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with pipes; killed at the end whatever the test found."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_lines_and_spool_hold_what_the_sampler_yields(long_clip: Path, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.write_bytes(b"earlier")
    code, lines, errors = decode(long_clip, "--spool", spool, "--fps", "40", "--pixel-budget", "5000")
    assert (code, errors) == (0, "")
    with VideoSampler(long_clip, Sampling(fps=40.0, pixel_budget=5000)) as sampler:
        samples = list(sampler)
    first, *refs, last = lines
    assert first == InfoLine(info=sampler.info, times_ns=sampler.times_ns)
    assert last == EndLine(samples=119, damaged=0, warnings=())
    data = spool.read_bytes()
    assert len(refs) == len(samples) == 119
    for ref, sample in zip(refs, samples, strict=True):
        assert isinstance(ref, SampleRef) and ref.offset is not None and ref.size is not None
        assert data[ref.offset : ref.offset + ref.size] == sample.data
        assert ref.digest == hashlib.sha256(sample.data or b"").hexdigest()
        assert (ref.k, ref.media_ns, ref.source_ns) == (sample.k, sample.media_ns, sample.source_ns)
        assert (ref.width, ref.height) == (sample.width, sample.height)
    # 89 pictures at 40 samples a second (the last, at 2.97 s, is never due): no room is taken twice
    sizes = {ref.offset: ref.size for ref in refs if isinstance(ref, SampleRef)}
    assert len(sizes) == 89
    assert len(data) == len(b"earlier") + sum(size or 0 for size in sizes.values())


def test_samples_without_a_picture_have_no_place(make_clip: Callable[..., Path], tmp_path: Path) -> None:
    clip = make_clip("late.mp4", [700, 990], sound_ms=1000)
    code, lines, _ = decode(clip, "--spool", tmp_path / "spool", "--fps", "2")
    assert code == 0
    assert lines[1] == SampleRef(k=0, media_ns=0)
    assert lines[2] == SampleRef(k=1, media_ns=500_000_000)
    assert lines[3] == EndLine(
        samples=2, damaged=0, warnings=("samples without a picture: 2; nothing is visible before 0.700 s",)
    )


def test_refused_files_end_in_an_error_line(long_clip: Path, tmp_path: Path) -> None:
    (tmp_path / "no.mp4").write_bytes(b"")
    code, lines, _ = decode(tmp_path / "no.mp4", "--spool", tmp_path / "spool")
    assert code == 2
    assert lines == [ErrorLine(error=f"no video in {str(tmp_path / 'no.mp4')!r}: the file is empty")]
    code, lines, _ = decode(long_clip, "--spool", "/dev/full")
    assert code == 2
    assert isinstance(lines[-1], ErrorLine) and "no space left" in lines[-1].error
    code, lines, _ = decode("--probe", long_clip, tmp_path / "no.mp4", long_clip)
    assert code == 0
    info = InfoLine(info=probe_video(long_clip), times_ns=())
    assert [lines[0], lines[2]] == [info, info] and isinstance(lines[1], ErrorLine)


def test_it_gives_way_to_others_and_ends_with_its_reader(long_clip: Path, tmp_path: Path) -> None:
    command = [*COMMAND, str(long_clip), "--spool", str(tmp_path / "spool"), *MANY]
    with running(*command) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(ours + NICENESS, 19)
        process.stdout.close()
        assert process.wait(timeout=30) == 1


def test_it_ends_with_its_reader_also_while_it_writes_nothing() -> None:
    busy = (
        "import threading; from streamsim.episodes.decoder import _end_with_reader; "
        "_end_with_reader(); print('busy', flush=True); threading.Event().wait()"
    )
    with running(sys.executable, "-c", busy) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=30) == 1


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs process file descriptors (Linux)")
def test_it_ends_when_its_parent_is_killed(long_clip: Path, tmp_path: Path) -> None:
    parent = (
        "import subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, bufsize=0); "
        "p.stdout.read(1); print(p.pid, flush=True); sys.stdin.read()"
    )
    command = [*COMMAND, str(long_clip), "--spool", str(tmp_path / "spool"), *MANY]
    with running(sys.executable, "-c", parent, *command) as process:
        assert process.stdout is not None
        decoder = os.pidfd_open(int(process.stdout.readline()))
        try:
            process.send_signal(signal.SIGKILL)
            assert select.select([decoder], [], [], 30)[0], "the decoder outlives its parent"
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(decoder, signal.SIGKILL)
            os.close(decoder)
