"""Time for people: the verdict, the harness's own share, and how long answers took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from streamsim.plural import counted
from streamsim.report.console import say
from streamsim.report.run_summary import RunSummary
from streamsim.scoring.latency import PROBES
from streamsim.scoring.spread import PERCENTILE_NEEDS
from streamsim.scoring.verdict import RESUME_HINT

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
    say(console, f"verdict: {verdict.grade}")
    for reason in verdict.reasons:
        say(console, f"  {reason}")
    for hint in verdict.hints:
        if hint != RESUME_HINT:  # the report ends with the very command
            say(console, f"  hint: {hint}")
    for line in harness_lines(summary.harness):
        say(console, line)
    factor = summary.agent["real_time_factor"]
    if isinstance(factor, float):
        say(console, f"agent: real-time factor {factor:.3f} (its own work per second of media)")
    print_latency(summary.latency, console)


def harness_lines(harness: Mapping[str, Any]) -> list[str]:
    """The harness's own share: what no agent could do anything about; what was not measured is named once."""
    late, way, lag = harness["release_lateness"], harness["probe_transport"], harness["loop_lag"]
    share = harness["share_of_latency"]
    released = [f"{counted(harness['releases'], 'release')}, {harness['late']} late"]
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
        lines.append(f"{counted(harness['held_by_credit'], 'release')} waited for the agent to receive")
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


def print_latency(
    latency: Mapping[str, Any], console: Console, *, recorded: Mapping[str, Any] | None = None
) -> None:
    """Headline from due, from sent beside it, then the parts, per kind of probe.

    With ``recorded``, the same figures of the run that this was made from, both stand in one table.
    """
    withheld = latency.get("withheld")
    if withheld is not None:
        say(console, f"latency withheld: {withheld}")
        return
    if not latency and not recorded:
        say(console, "latency: no figures: no probe was asked, or only such as the run's own end cut off")
        return
    if recorded is not None and "withheld" in recorded:
        say(console, f"latency as recorded is withheld: {recorded['withheld']}")
        recorded = None
    pairs: dict[str, _Pair] = {
        probe: _Pair(before=(recorded or {}).get(probe), after=latency.get(probe), both=recorded is not None)
        for probe in PROBES
        if probe in latency or probe in (recorded or {})
    }
    both = "; “recorded → rescored” where they differ" if recorded is not None else ""
    say(console, f"latency in seconds, on the server's clock; n holds unanswered probes{both}:")
    table, same = _span_table(pairs)
    console.print(table)
    if same:
        say(console, f"{same} (to the digit shown)")
    say(console, "due → final in parts (medians of n answered), stale in media seconds, misses:")
    console.print(_part_table(pairs))
    notes = list(_notes(latency))
    if recorded:
        before = list(_notes(recorded))
        shared = [line for line in before if line in notes]
        notes = [
            *(line for line in before if line in shared),
            *(f"recorded: {line}" for line in before if line not in shared),
            *(f"rescored: {line}" for line in notes if line not in shared),
        ]
    for line in notes:
        say(console, line)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """The figures of one kind of probe; if ``both`` are shown, also those of the recorded run before it.

    None where this kind was never asked.
    """

    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    both: bool

    def show(self, cell: Callable[[Mapping[str, Any]], str]) -> str:
        """The cell of both, once where it is the same."""
        before, after = ("–" if figures is None else cell(figures) for figures in (self.before, self.after))
        return f"{before} → {after}" if self.both and before != after else after

    @property
    def figures(self) -> Iterator[Mapping[str, Any]]:
        """Those that there are."""
        yield from (figures for figures in (self.before, self.after) if figures is not None)


def _span_table(pairs: Mapping[str, _Pair]) -> tuple[Table, str]:
    """A row for each interval, and which are left out since they read like another."""
    spans = [figures[span] for pair in pairs.values() for figures in pair.figures for span in SPANS]
    shown = [name for name in _SHOWN if any(name in span for span in spans)]
    table = Table(box=None, pad_edge=False)
    table.add_column("probe")
    table.add_column("from → to", no_wrap=True)
    for name in ("n", "timed out", *shown):
        table.add_column(name, justify="right")
    left_out: dict[str, list[str]] = {"first = final": [], "sent = due": []}
    for probe, pair in pairs.items():
        rows = {span: [pair.show(_cell_of(span, name)) for name in shown] for span in SPANS}
        if all(rows[f"{begin}_to_first"] == rows[f"{begin}_to_final"] for begin in ("due", "sent")):
            left_out["first = final"].append(probe)
            del rows["due_to_first"], rows["sent_to_first"]
        if all(rows[span] == rows[span.replace("sent", "due")] for span in rows if span.startswith("sent")):
            left_out["sent = due"].append(probe)
            rows = {span: cells for span, cells in rows.items() if span.startswith("due")}
        n, timed_out = (pair.show(_count_of(name)) for name in ("n", "timed_out"))
        for span, cells in rows.items():
            table.add_row(probe, SPANS[span], n, timed_out, *cells)
    same = [
        title + ("" if len(probes) == len(pairs) else f" for {', '.join(probes)}")
        for title, probes in left_out.items()
        if probes
    ]
    return table, "; ".join(same)


def _part_table(pairs: Mapping[str, _Pair]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("probe")
    first = next(figures for pair in pairs.values() for figures in pair.figures)
    deadlines = "/".join(f"{missed['deadline_s']:g}" for missed in first["missed"])
    for name in ("n", *PARTS.values(), "stale", "backlog", f"over {deadlines} s"):
        table.add_column(name, justify="right")
    cells = [
        lambda figures: str(figures["parts"]["transport"]["n"]),
        *(_part_of(part) for part in PARTS),
        lambda figures: _seconds(figures["staleness"]["p50"], none="–"),
        lambda figures: "–" if figures["backlog"]["p50"] is None else f"{figures['backlog']['p50']:g}",
        lambda figures: "/".join(str(missed["n"]) for missed in figures["missed"]),
    ]
    for probe, pair in pairs.items():
        table.add_row(probe, *(pair.show(cell) for cell in cells))
    return table


def _cell_of(span: str, name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda figures: _cell(figures[span], name)


def _count_of(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda figures: str(figures[name])


def _part_of(part: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda figures: _seconds(figures["parts"][part]["p50"], none="–")


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
