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
    """The harness's own share: what no agent could do anything about; what was not measured is named once."""
    late, way, lag = harness["release_lateness"], harness["probe_transport"], harness["loop_lag"]
    share = harness["share_of_latency"]
    released = [f"{harness['releases']} releases, {harness['late']} late"]
    if late["n"]:
        released.append(f"lateness p50 {_ms(late['p50'])}, max {_ms(late['max'])}")
    if way["n"]:
        released.append(f"way to the agent and back p50 {_ms(way['p50'])}, max {_ms(way['max'])}")
    sides = {"the server": lag["server_p99"], "the agent's runtime": lag["agent_p99"]}
    lags = [f"{_ms(seconds)} in {side}" for side, seconds in sides.items() if seconds is not None]
    loops = [f"loop lag p99 {', '.join(lags)}"] if lags else []
    if share is not None:
        loops.append(f"its share of an answer's time: {share:.1%} (median)")
    lines = ["; ".join(parts) for parts in (released, loops) if parts]
    if harness["held_by_credit"]:
        lines.append(f"{harness['held_by_credit']} releases waited for the agent to receive")
    if harness["decoder_hold"]:
        lines.append(f"the clock stood {harness['decoder_hold']:.2f} s for the decoder (not in latency)")
    missing = list(_not_measured(harness))
    if missing:
        lines.append(f"not measured: {'; '.join(missing)}")
    return [f"harness: {line}" for line in lines]


def _not_measured(harness: Mapping[str, Any]) -> Iterator[str]:
    """What the harness's lines lack, and why."""
    lag = harness["loop_lag"]
    if not harness["probe_transport"]["n"]:
        yield "way to the agent and share of an answer's time (no probe was answered)"
    if lag["server_p99"] is None:
        yield "loop lag (told at a session's end: none came to it)"
    elif lag["agent_p99"] is None:
        yield "loop lag in the agent's runtime (the agent's farewell tells it: none did)"


def print_latency(latency: Mapping[str, Any], console: Console) -> None:
    """Headline from due, from sent beside it, then the parts, per kind of probe."""
    withheld = latency.get("withheld")
    if withheld is not None:
        console.print(f"latency withheld: {withheld}", highlight=False, soft_wrap=True)
        return
    if not latency:
        console.print(
            "latency: no figures: no probe was asked, or only such as the run's own end cut off",
            highlight=False,
            soft_wrap=True,
        )
        return
    console.print("latency in seconds, on the server's clock; n holds unanswered probes:", highlight=False)
    console.print(_span_table(latency))
    console.print(
        "due → final in parts (medians of n answered), stale in media seconds, misses:",
        highlight=False,
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
    for name in ("n", *PARTS.values(), "stale", "backlog", f"over {deadlines} s"):
        table.add_column(name, justify="right")
    for probe, figures in latency.items():
        table.add_row(
            probe,
            str(figures["parts"]["transport"]["n"]),
            *(_seconds(figures["parts"][part]["p50"], none="–") for part in PARTS),
            _seconds(figures["staleness"]["p50"], none="–"),
            "–" if figures["backlog"]["p50"] is None else f"{figures['backlog']['p50']:g}",
            "/".join(str(missed["n"]) for missed in figures["missed"]),
        )
    return table


def _notes(latency: Mapping[str, Any]) -> Iterator[str]:
    """What the tables do not show: each thing once, for all kinds of probe that it is true of."""
    headlines = {probe: figures["due_to_final"] for probe, figures in latency.items()}
    too_small = _too_small(headlines)
    if too_small:
        yield too_small
    intervals = [
        f"{probe} {_seconds(interval[0])} to {_seconds(interval[1])} s"
        for probe, headline in headlines.items()
        if (interval := headline.get("ci95", {}).get("p50")) is not None
    ]
    repeats = [
        f"{probe} {', '.join(_seconds(run['p50']) for run in found['runs'])} s "
        f"({_seconds(found['p50_spread'])} s apart)"
        for probe, figures in latency.items()
        if (found := figures["repeats"]) is not None
    ]
    slopes = [
        f"{probe} {slope:+.3f} s"
        for probe, figures in latency.items()
        if (slope := figures["age"]["slope_s_per_hour"]) is not None
    ]
    titles = {
        "95 % interval of the median due → final, over episodes": intervals,
        "medians of the repeats, due → final": repeats,
        "change of due → final per hour of session": slopes,
    }
    yield from (f"{title}: {'; '.join(parts)}" for title, parts in titles.items() if parts)


def _too_small(headlines: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Which percentiles n does not carry and what they need; probes are named where others have enough."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for percent in PERCENTILE_NEEDS:
        lacking = tuple(
            p for p, headline in headlines.items() if f"p{percent}" in headline["n_too_small_for"]
        )
        if lacking:
            groups.setdefault(lacking, []).append(percent)
    if not groups:
        return None
    texts = []
    for probes, percents in groups.items():
        names = ", ".join(f"p{percent}" for percent in percents)
        needs = ", ".join(str(PERCENTILE_NEEDS[percent]) for percent in percents)
        place = "" if len(probes) == len(headlines) else f" of {', '.join(probes)}"
        texts.append(f"for {names}{place} (need{'s' * (len(percents) == 1)} {needs})")
    hint = "; a p50 is shown all the same" if any(50 in percents for percents in groups.values()) else ""
    return f"n too small {', '.join(texts)}{hint}"


def _cell(span: Mapping[str, Any], name: str) -> str:
    if name not in span:
        return "–"
    at_least = "≥" if name in span["at_least"] and span[name] is not None else ""
    return at_least + _seconds(span[name])


def _seconds(value: float | None, none: str = "∞") -> str:
    return none if value is None else f"{value:.3f}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
