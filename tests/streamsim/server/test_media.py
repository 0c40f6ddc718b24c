"""Media for sessions, with real decoder processes: shared, killed, cancelled, and nothing left behind."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from streamsim.episodes.sampling import Sampling, VideoInfo
from streamsim.episodes.video import VideoSampler, probe_video
from streamsim.errors import VideoError
from streamsim.server.media import Media, MediaStore, probe_videos

pytestmark = pytest.mark.slow

MANY = Sampling(fps=3000.0)
"""So many samples that the decoder still works when ``open`` returns: megabytes of lines."""


def children() -> set[int]:
    """Processes that this one started and has not reaped (Linux), but for multiprocessing's own tracker."""
    threads = Path("/proc/self/task").iterdir()
    pids = {int(pid) for thread in threads for pid in (thread / "children").read_text().split()}
    return {pid for pid in pids if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()}


def open_files(folder: Path) -> list[str]:
    """Files of ``folder`` that this process has open, also nameless ones."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            links.append(str(link.readlink()))
    return [link for link in links if link.startswith(f"{folder}/")]


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def spools(tmp_path: Path) -> Path:
    folder = tmp_path / "spools"
    folder.mkdir()
    return folder


def decoder_pid(media: Media) -> int:
    assert media._decoder is not None and media._decoder.pid is not None
    return media._decoder.pid


def test_a_server_imports_no_decoder() -> None:
    code = "import sys, streamsim.server.media; print({'av', 'PIL', 'numpy'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


async def test_media_is_what_the_sampler_yields(long_clip: Path, spools: Path) -> None:
    media = await Media.open(long_clip, Sampling(fps=7.0), folder=spools)
    with VideoSampler(long_clip, Sampling(fps=7.0)) as sampler:
        expected = list(sampler)
    assert media.info == sampler.info
    assert media.times_ns == sampler.times_ns
    news: list[int] = []
    unsubscribe = media.subscribe(lambda: news.append(len(media.samples)))
    await media.wait_for(3)
    assert len(media.samples) >= 3
    await media.wait_for(1_000_000)
    assert media.ended and media.error is None and media.warnings == () and media.damaged == 0
    assert [media.read(sample) for sample in media.samples] == [sample.data for sample in expected]
    digests = [hashlib.sha256(sample.data or b"").hexdigest() for sample in expected]
    assert [sample.digest for sample in media.samples] == digests
    assert news[-1] == 21
    assert names(spools) == [], "the spool file has no name"
    assert len(open_files(spools)) == 1
    unsubscribe()
    await media.close()
    await media.close()
    assert open_files(spools) == [] and children() == set()
    assert media.ended and media.error is None
    with pytest.raises(ValueError, match="closed"):
        media.read(media.samples[0])


async def test_a_sample_without_a_picture_cannot_be_read(make_clip: Callable[..., Path]) -> None:
    media = await Media.open(make_clip("late.mp4", [700, 1010], sound_ms=1000))
    await media.wait_for(2)
    assert [sample.size is None for sample in media.samples] == [True, False]
    with pytest.raises(ValueError, match="sample 0 has no picture"):
        media.read(media.samples[0])
    await media.close()


async def test_sessions_share_one_decoder(long_clip: Path, spools: Path) -> None:
    async with MediaStore(folder=spools) as store:
        async with store.lease(long_clip, MANY) as first:
            both = await asyncio.gather(*(_lease_once(store, long_clip, MANY) for _ in range(3)))
            assert both == [first, first, first]
            assert len(children()) == 1
            async with store.lease(long_clip, Sampling(fps=2.0)) as other:
                assert other is not first
                assert other.samples is not first.samples
        assert children() == set() and open_files(spools) == []
        async with store.lease(long_clip, MANY) as again:
            assert again is not first


async def _lease_once(store: MediaStore, path: Path, sampling: Sampling) -> Media:
    async with store.lease(path, sampling) as media:
        return media


async def test_a_killed_decoder_is_an_error_in_one_line(long_clip: Path, spools: Path) -> None:
    async with MediaStore(folder=spools, decoders=1) as store:
        async with store.lease(long_clip, MANY) as media:
            waiting = asyncio.create_task(media.wait_for(1_000_000))
            os.kill(decoder_pid(media), signal.SIGKILL)
            await waiting
            known = len(media.samples)
            assert media.error == (
                f"the decoder of {str(long_clip)!r} was killed by SIGKILL after {known} samples"
            )
            assert not media.ended and known < len(media.times_ns)
            assert all(media.read(sample) for sample in media.samples)
            # whoever comes now is served anew, while the first user still holds what there is
            async with store.lease(long_clip, MANY) as again:
                await again.wait_for(1_000_000)
                assert again.ended and len(again.samples) == len(again.times_ns)
                assert again.samples[:known] == media.samples
        assert children() == set() and open_files(spools) == []


async def test_a_decoder_that_hangs_is_an_error_in_one_line(long_clip: Path, spools: Path) -> None:
    media = await Media.open(long_clip, MANY, folder=spools, patience_s=30)
    os.kill(decoder_pid(media), signal.SIGSTOP)
    media.patience_s = 0.05
    media.keep_watching()
    try:
        await media.wait_for(1_000_000)
        known = len(media.samples)
        assert media.error == (
            f"the decoder of {str(long_clip)!r} made no progress for 0.05 s after {known} samples"
        )
        assert known < len(media.times_ns)
    finally:
        await media.close()
    assert children() == set() and open_files(spools) == []


async def test_closing_ends_a_working_decoder(long_clip: Path, spools: Path) -> None:
    media = await Media.open(long_clip, MANY, folder=spools)
    waiting = asyncio.create_task(media.wait_for(1_000_000))
    pid = decoder_pid(media)
    os.kill(pid, signal.SIGSTOP)  # it cannot end by itself
    try:
        async with asyncio.timeout(30):
            await media.close()
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    await waiting
    assert media.error == "closed before all samples were decoded"
    assert children() == set() and open_files(spools) == []


async def test_cancelling_at_any_step_leaves_no_process(long_clip: Path, spools: Path) -> None:
    cancelled = 0
    for steps in range(12):
        opening = asyncio.create_task(Media.open(long_clip, MANY, folder=spools))
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        try:
            await (await opening).close()
        except asyncio.CancelledError:
            cancelled += 1
        assert children() == set() and open_files(spools) == [], f"left behind after {steps} steps"
    assert cancelled == 12


async def test_waiting_can_be_cancelled(long_clip: Path) -> None:
    media = await Media.open(long_clip, MANY)
    waiting = asyncio.create_task(media.wait_for(1_000_000))
    await asyncio.sleep(0)
    assert len(media._subscribers) == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert media._subscribers == []
    await media.close()


async def test_decoders_take_turns(long_clip: Path, make_clip: Callable[..., Path]) -> None:
    short = make_clip("short.mp4", [0, 990])
    async with MediaStore(decoders=1) as store:
        async with store.lease(long_clip, MANY) as first:
            os.kill(decoder_pid(first), signal.SIGSTOP)
            given_up = asyncio.create_task(_lease_once(store, short, Sampling()))
            second = asyncio.create_task(_lease_once(store, short, Sampling()))
            await asyncio.sleep(0)
            assert len(children()) == 1
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert not second.done() and len(children()) == 1
            os.kill(decoder_pid(first), signal.SIGCONT)
            media = await second
            assert first.ended, "the second began before the first had ended"
            assert media.info.pictures == 2
        # a place is given back however a decoder ends: refused, closed early
        for _ in range(2):
            with pytest.raises(VideoError, match="no video file"):
                await _lease_once(store, Path("absent.mp4"), Sampling())
        await _lease_once(store, long_clip, MANY)
        await _lease_once(store, long_clip, MANY)


async def test_a_refused_file_is_refused_for_all_who_ask(tmp_path: Path) -> None:
    (tmp_path / "no.mp4").write_bytes(b"")
    async with MediaStore() as store:
        asked = [_lease_once(store, tmp_path / "no.mp4", Sampling()) for _ in range(3)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert {(type(answer), str(answer)) for answer in answers} == {
        (VideoError, f"no video in {str(tmp_path / 'no.mp4')!r}: the file is empty")
    }
    assert children() == set()


async def test_probing_keeps_the_order_and_survives_a_crash(long_clip: Path, tmp_path: Path) -> None:
    info = probe_video(long_clip)
    (tmp_path / "no.mp4").write_bytes(b"")
    found = await probe_videos([long_clip] * 65 + [tmp_path / "no.mp4", long_clip])
    assert found[:65] == [info] * 65 and found[66] == info
    assert isinstance(found[65], VideoError) and "the file is empty" in str(found[65])

    probing = asyncio.create_task(probe_videos([long_clip] * 30))
    while not children():  # noqa: ASYNC110
        await asyncio.sleep(0)
    os.kill(children().pop(), signal.SIGKILL)
    found = await probing
    refused = [answer for answer in found if isinstance(answer, VideoError)]
    assert [str(error) for error in refused] == [f"the decoder was killed by SIGKILL on {str(long_clip)!r}"]
    assert len(found) == 30 and sum(isinstance(answer, VideoInfo) for answer in found) == 29
