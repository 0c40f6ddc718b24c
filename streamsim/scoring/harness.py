"""The harness's own share of a run's time: how late it was, what the wire cost, how its loops fared.

It is told first, since a latency is worth no more than what measured it; the agent's load beside it.
All values are seconds unless their name says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from streamsim.events import LATE_NS
from streamsim.scoring.latency import clock_name, slope
from streamsim.scoring.record import Release, SessionRecord
from streamsim.scoring.spread import Sample, describe


def is_late(release: Release) -> bool:
    """Whether a release was late through our own doing; lack of the client's credit is not ours."""
    return release.late_ns > LATE_NS and release.held_by != "credit"


def harness_figures(records: Sequence[SessionRecord]) -> dict[str, object]:
    """The harness's share, over frames and task probes of all sessions."""
    clock = clock_name(records[0].started.clock) if records else clock_name("realtime")
    releases = [release for record in records for release in record.releases]
    ours = [release for release in releases if release.held_by != "credit"]
    probe_parts = [parts for record in records for probe in record.probes if (parts := probe.parts())]
    frame_transport = [
        transport_ns
        for record in records
        for frame in record.frames
        if frame.outcome in ("processed", "failed") and (transport_ns := frame.transport_ns) is not None
    ]
    shares = [
        (parts.dispatch_ns + parts.transport_ns) / parts.total_ns
        for parts in probe_parts
        if parts.total_ns > 0
    ]
    return {
        "releases": len(releases),
        "early": sum(record.early for record in records),
        "late": sum(is_late(release) for release in ours),
        "held_by_credit": sum(release.held_by == "credit" for release in releases),
        "held_by_decoder": sum(release.held_by == "decoder" for release in releases),
        "release_lateness": {
            "origin": f"due to sent, {clock}; what waited for the client's credit is left out",
            **describe([Sample(release.late_ns / 1e9) for release in ours]),
        },
        "probe_transport": {
            "origin": "sent to final, server's wall clock, less the agent's own durations: both ways",
            **describe([Sample(parts.transport_ns / 1e9) for parts in probe_parts]),
        },
        "frame_transport": {
            "origin": "sent to settled, server's wall clock, less the agent's own durations: both ways",
            **describe([Sample(transport_ns / 1e9) for transport_ns in frame_transport]),
        },
        "share_of_latency": median(shares) if shares else None,
        "loop_lag": _loop_lag(records),
        "decoder_hold": sum(record.decoder_hold_ns for record in records) / 1e9,
        "damaged_pictures": sum(
            record.harness.damaged_pictures for record in records if record.harness is not None
        ),
    }


def agent_figures(records: Sequence[SessionRecord]) -> dict[str, object]:
    """The agent's load: its own work against media time, and whether frames take longer as it remembers more.

    ``real_time_factor`` above 1 means that it cannot keep up.
    """
    media_ns = sum(record.media_ns for record in records)
    busy_ns = sum(record.busy_ns for record in records)
    processed = [
        frame for record in records for frame in record.frames if frame.outcome in ("processed", "failed")
    ]
    return {
        "media": media_ns / 1e9,
        "busy": busy_ns / 1e9,
        "real_time_factor": busy_ns / media_ns if media_ns else None,
        "frame_service": {
            "origin": "one observe, the agent's own duration",
            **describe([Sample(frame.service_ns / 1e9) for frame in processed]),
        },
        "frame_waited": {
            "origin": "reception to observe, the agent's own duration",
            **describe([Sample(frame.waited_ns / 1e9) for frame in processed]),
        },
        "frame_service_slope_s_per_hour": slope(
            [
                (frame.media_ns / 1e9, frame.service_ns / 1e9)
                for frame in record.frames
                if frame.outcome == "processed"
            ]
            for record in records
        ),
    }


def _loop_lag(records: Sequence[SessionRecord]) -> dict[str, float | None]:
    """The worst session's lag of either side's event loop; None where nobody said."""
    reports = [record.harness for record in records if record.harness is not None]
    agent_p99 = [report.agent_lag_p99_ns for report in reports if report.agent_lag_p99_ns is not None]
    agent_max = [report.agent_lag_max_ns for report in reports if report.agent_lag_max_ns is not None]
    return {
        "server_p99": _worst([report.server_lag_p99_ns for report in reports]),
        "server_max": _worst([report.server_lag_max_ns for report in reports]),
        "agent_p99": _worst(agent_p99),
        "agent_max": _worst(agent_max),
    }


def _worst(lags_ns: Sequence[int]) -> float | None:
    return max(lags_ns) / 1e9 if lags_ns else None
