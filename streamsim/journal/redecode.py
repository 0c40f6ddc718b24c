"""A run against its dataset: videos decoded anew, frame by frame, queries and prompts word by word.

Pictures are compared by the digests that the journal recorded, so they must have been encoded by the
same libraries; ``run.json`` names their versions. Everything else follows from the dataset alone, also
what is missing: every sample that the video has by the time a query is due was released before it, as a
frame or as a gap, and all samples before the media ended. A session that ended early owes nothing of what
came later.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from streamsim.episodes.dataset import Dataset
from streamsim.episodes.episode import Episode, EpisodeQuery
from streamsim.episodes.sampling import Sample, Sampling
from streamsim.episodes.video import VideoSampler
from streamsim.errors import UsageError
from streamsim.events import FrameSent, GapSent, MediaEnded, ProbeSent
from streamsim.journal.folder import RunConfig, RunFile, encoder_versions, read_last_attempts, read_run_file
from streamsim.journal.read import JournalFile
from streamsim.journal.verify import Offence
from streamsim.plural import counted
from streamsim.prompts import Prompts, load_prompts
from streamsim.timeline import Timeline
from streamsim_protocol.messages import VISIBILITY_TOLERANCE_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picture:
    media_ns: int
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoded:
    """All samples of a video by k; None where nothing is visible yet."""

    times_ns: tuple[int, ...]
    pictures: list[_Picture | None]


def compare_with_dataset(
    folder: Path, dataset: Dataset, *, on_episode: Callable[[str], None] = lambda episode: None
) -> Offence | None:
    """The first thing that the newest attempts of a run show and ``dataset`` does not; None if all agree.

    ``on_episode`` is told which episode is decoded next. ``StreamsimError`` for a video that cannot be
    read and for prompts that are gone.
    """
    run_file = read_run_file(folder)
    config = run_file.config
    if dataset.digest != config.dataset_digest:
        return Offence(
            file="run.json",
            line=None,
            found=f"dataset digest {config.dataset_digest}",
            expected=dataset.digest,
        )
    prompts = load_prompts(Path(config.prompts) if config.prompts else None)
    if prompts.digest != config.prompts_digest:
        raise UsageError(
            "the prompt texts of the run are not these: put back the file that --prompts named, or the "
            "streamsim that the run was made with"
        )
    episodes = {episode.id: episode for episode in dataset.episodes}
    by_episode: dict[str, list[JournalFile]] = {}
    for journal in read_last_attempts(folder):
        by_episode.setdefault(journal.started.episode, []).append(journal)
    for name, journals in by_episode.items():
        episode = episodes[name]
        on_episode(name)
        decoded = _decode(dataset.video_path(episode), config)
        for journal in journals:
            offence = _Comparison(journal, episode, decoded, prompts).run()
            if offence is not None:
                return _explain(offence, run_file)
    return None


def _decode(path: Path, config: RunConfig) -> _Decoded:
    """Every sample of a video."""
    sampling = Sampling(
        fps=config.fps,
        pixel_budget=config.pixel_budget,
        encoding=config.encoding,
        quality=config.quality,
        rule=config.sampling,
    )
    with VideoSampler(path, sampling) as samples:
        pictures = [_picture(sample) for sample in samples]
        return _Decoded(times_ns=samples.times_ns, pictures=pictures)


def _picture(sample: Sample) -> _Picture | None:
    if sample.data is None:
        return None
    return _Picture(
        media_ns=sample.media_ns,
        size_bytes=len(sample.data),
        digest=hashlib.sha256(sample.data).hexdigest(),
    )


class _Comparison:
    """One journal against one episode."""

    def __init__(self, journal: JournalFile, episode: Episode, decoded: _Decoded, prompts: Prompts) -> None:
        self._journal = journal
        self._pictures = decoded.pictures
        self._times_ns = decoded.times_ns
        self._released = 0
        self._prompts = prompts
        self._frame_times_ns = [picture.media_ns for picture in decoded.pictures if picture is not None]
        timeline = Timeline(episode.queries, decoded.times_ns)
        self._plan = timeline.plan()
        self._queries = dict(zip((plan.query for plan in self._plan), timeline.queries, strict=True))
        self._due_ns = {plan.query: plan.due_media_ns for plan in self._plan}

    def run(self) -> Offence | None:
        if self._journal.started.queries != self._plan:
            return self._offence(1, "other queries or times than the dataset has", "the plan of the dataset")
        for entry in self._journal.entries:
            event = entry.event
            problem: tuple[str, str] | None = None
            match event:
                case FrameSent():
                    problem = self._compare_frame(event)
                    self._released = event.k + 1
                case GapSent():
                    problem = self._compare_gap(event)
                    self._released = event.to_k
                case ProbeSent():
                    problem = self._find_missing(event) or self._compare_probe(event)
                case MediaEnded():
                    problem = self._compare_end(event)
                case _:
                    pass
            if problem is not None:
                return self._offence(entry.n, *problem)
        return None

    def _compare_frame(self, frame: FrameSent) -> tuple[str, str] | None:
        picture = self._pictures[frame.k] if frame.k < len(self._pictures) else None
        if picture is None:
            return f"frame {frame.k}", "no picture: the video has none there"
        sent = (frame.media_ns, frame.size_bytes, frame.digest)
        there = (picture.media_ns, picture.size_bytes, picture.digest)
        return None if sent == there else (_describe(frame.k, sent), _describe(frame.k, there))

    def _compare_gap(self, gap: GapSent) -> tuple[str, str] | None:
        shown = [k for k in range(gap.from_k, gap.to_k) if k >= len(self._pictures) or self._pictures[k]]
        return (f"a gap at sample {shown[0]}", "the picture that the video has there") if shown else None

    def _find_missing(self, probe: ProbeSent) -> tuple[str, str] | None:
        """The first sample that a query may see and was not given."""
        if probe.probe != "task" or self._released >= bisect_right(self._times_ns, self._due_ns[probe.query]):
            return None
        missing = f"sample {self._released} of {self._times_ns[self._released]} ns, which the video has"
        return f"{probe.query} asked after {counted(self._released, 'sample')}", f"{missing}, before it"

    def _compare_end(self, ended: MediaEnded) -> tuple[str, str] | None:
        there = len(self._times_ns)
        if ended.samples == there:
            return None
        return (
            f"the end of media after {counted(ended.samples, 'sample')}",
            f"{there}, as many as the video has",
        )

    def _compare_probe(self, probe: ProbeSent) -> tuple[str, str] | None:
        query: EpisodeQuery = self._queries[probe.query]
        visible = bisect_right(self._frame_times_ns, query.media_ns + VISIBILITY_TOLERANCE_NS)
        text = self._prompts.render(
            probe.probe,
            kind=query.kind,
            stem=query.stem,
            options=query.options if probe.probe == "task" else (),
            frame_stamps=tuple(self._frame_times_ns[:visible]),
        )
        return None if probe.text == text else (f"the prompt {probe.text!r}", repr(text))

    def _offence(self, line: int, found: str, expected: str) -> Offence:
        return Offence(file=self._journal.path.name, line=line, found=found, expected=expected)


def _describe(k: int, picture: tuple[int, int, str]) -> str:
    media_ns, size_bytes, digest = picture
    return f"frame {k} of {media_ns} ns, {size_bytes} bytes, digest {digest}"


def _explain(offence: Offence, run_file: RunFile) -> Offence:
    """Say so where other encoders than the run's may be the reason."""
    there = encoder_versions()
    others = [
        f"{name} {run_file.host[name]}, here {there[name]}"
        for name in there
        if name in run_file.host and run_file.host[name] != there[name]
    ]
    if not others:
        return offence
    hint = f"the run was made with {'; '.join(others)}: pictures may differ by that"
    return msgspec.structs.replace(offence, expected=f"{offence.expected} ({hint})")
