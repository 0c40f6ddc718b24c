"""Time for people: the verdict, the harness's own share, and how long answers took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from streamsim.report.run_summary import RunSummary
from streamsim.scoring.spread import PERCENTILE_NEEDS

SPANS = {
    "due_to_first": "due → first",
    "due_to_final": "due → final",
    "sent_to_first": "sent → first",
    "sent_to_final": "sent → final",
}
PARTS = {"dispatch": "dispatch", "transport": "transport", "waited": "waited", "agent_service": "service"}
_SHOWN = ("p50", "p90", "p95", "p99", "max")


def print_time(summary: RunSummary, console: Console) -> None:
    """Everything about time, the harness first."""
    verdict = summary.verdict
    console.print(f"verdict: {verdict.grade}", highlight=False)
    for reason in verdict.reasons:
        console.print(f"  {reason}", markup=False, highlight=False, soft_wrap=True)
    for hint in verdict.hints:
        console.print(f"  hint: {hint}", markup=False, highlight=False, soft_wrap=True)
    for line in harness_lines(summary.harness):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    factor = summary.agent["real_time_factor"]
    if isinstance(factor, float):
        console.print(
            f"agent: real-time factor {factor:.3f} (its own work per second of media)", highlight=False
        )
    print_latency(summary.latency, console)


def harness_lines(harness: Mapping[str, Any]) -> list[str]:
    """The harness's own share: what no agent could do anything about."""
    late, way, lag = harness["release_lateness"], harness["probe_transport"], harness["loop_lag"]
    lines = [
        f"harness: {harness['releases']} releases, {harness['late']} late; lateness p50 {_ms(late['p50'])}, "
        f"max {_ms(late['max'])}; way to the agent and back p50 {_ms(way['p50'])}, max {_ms(way['max'])}",
        f"harness: loop lag p99 {_ms(lag['server_p99'])} in the server, {_ms(lag['agent_p99'])} in the "
        f"agent's runtime; its share of an answer's time: {_percent(harness['share_of_latency'])} (median)",
    ]
    if harness["held_by_credit"]:
        lines.append(f"harness: {harness['held_by_credit']} releases waited for the agent to receive")
    if harness["decoder_hold"]:
        stood = f"{harness['decoder_hold']:.2f} s"
        lines.append(f"harness: the clock stood {stood} for the decoder (not in latency)")
    return lines


def print_latency(latency: Mapping[str, Any], console: Console) -> None:
    """Headline from due, from sent beside it, then the parts, per kind of probe."""
    withheld = latency.get("withheld")
    if withheld is not None:
        console.print(f"latency withheld: {withheld}", highlight=False, soft_wrap=True)
        return
    if not latency:
        return
    console.print("latency in seconds, on the server's clock; n holds unanswered probes:", highlight=False)
    console.print(_span_table(latency))
    console.print(
        "due → final in parts (medians), staleness in media seconds, backlog, misses:", highlight=False
    )
    console.print(_part_table(latency))
    for line in _notes(latency):
        console.print(line, highlight=False, soft_wrap=True)


def _span_table(latency: Mapping[str, Any]) -> Table:
    spans = [figures[span] for figures in latency.values() for span in SPANS]
    shown = [name for name in _SHOWN if any(name in span for span in spans)]
    table = Table(box=None, pad_edge=False)
    table.add_column("probe")
    table.add_column("from → to", no_wrap=True)
    for name in ("n", "timed out", *shown):
        table.add_column(name, justify="right")
    for probe, figures in latency.items():
        for span, title in SPANS.items():
            head = (probe, title, str(figures["n"]), str(figures["timed_out"]))
            table.add_row(*head, *(_cell(figures[span], name) for name in shown))
    return table


def _part_table(latency: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("probe")
    deadlines = "/".join(f"{missed['deadline_s']:g}" for missed in next(iter(latency.values()))["missed"])
    for name in (*PARTS.values(), "stale", "backlog", f"later than {deadlines} s"):
        table.add_column(name, justify="right")
    for probe, figures in latency.items():
        table.add_row(
            probe,
            *(_seconds(figures["parts"][part]["p50"], none="–") for part in PARTS),
            _seconds(figures["staleness"]["p50"], none="–"),
            "–" if figures["backlog"]["p50"] is None else f"{figures['backlog']['p50']:g}",
            "/".join(str(missed["n"]) for missed in figures["missed"]),
        )
    return table


def _notes(latency: Mapping[str, Any]) -> Iterator[str]:
    for probe, figures in latency.items():
        headline = figures["due_to_final"]
        small = headline["n_too_small_for"]
        if small:
            needs = ", ".join(str(PERCENTILE_NEEDS[int(name[1:])]) for name in small)
            yield f"{probe}: n too small for {', '.join(small)} (needs {needs})"
        interval = headline.get("ci95", {}).get("p50")
        if interval is not None:
            low, high = (_seconds(value) for value in interval)
            yield f"{probe}: 95 % interval of the median due → final {low} to {high} s, over episodes"
        repeats = figures["repeats"]
        if repeats is not None:
            medians = ", ".join(_seconds(run["p50"]) for run in repeats["runs"])
            yield f"{probe}: medians of the repeats {medians} s, {_seconds(repeats['p50_spread'])} s apart"
        slope = figures["age"]["slope_s_per_hour"]
        if slope is not None:
            yield f"{probe}: latency changes by {slope:+.3f} s per hour of session"


def _cell(span: Mapping[str, Any], name: str) -> str:
    if name not in span:
        return "n too small"
    at_least = "≥" if name in span["at_least"] and span[name] is not None else ""
    return at_least + _seconds(span[name])


def _seconds(value: float | None, none: str = "∞") -> str:
    return none if value is None else f"{value:.3f}"


def _ms(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds * 1000:.1f} ms"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share:.1%}"
