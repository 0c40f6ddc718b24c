"""What ``run --dry-run`` prints: the sessions of a plan and when what falls due in them."""

from __future__ import annotations

from streamsim.episodes.episode import EpisodeQuery
from streamsim.launch.planning import PlannedRun
from streamsim.plural import counted


def schedule_object(planned: PlannedRun) -> dict[str, object]:
    """The schedule as one JSON object; times in seconds of media time."""
    return {
        "folder": str(planned.folder),
        "complete": planned.complete,
        "lanes": planned.plan.lanes,
        "sessions": [
            {
                "episode": planned.dataset.episodes[job.episode].id,
                "repeat": job.repeat,
                "attempt": job.attempt,
                "queries": [
                    {"id": query.id, "kind": query.kind, "seconds": query.media_ns / 1e9}
                    for query in planned.dataset.episodes[job.episode].queries
                ],
            }
            for job in planned.plan.jobs
        ],
    }


def schedule_lines(planned: PlannedRun) -> list[str]:
    """The schedule for people."""
    sessions, lanes = counted(len(planned.plan.jobs), "session"), counted(planned.plan.lanes, "lane")
    lines = [f"{sessions} in {lanes}, into {planned.folder}"]
    for job in planned.plan.jobs:
        episode = planned.dataset.episodes[job.episode]
        lines.append(f"{episode.id} (repeat {job.repeat}, attempt {job.attempt}):")
        lines += [f"  {_line(query)}" for query in episode.queries]
    return lines


def _line(query: EpisodeQuery) -> str:
    return f"{query.media_ns / 1e9:9.3f} s  {query.kind:9}  {query.stem}"
