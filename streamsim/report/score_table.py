"""Scores as tables for people: one subset upright with its intervals, several side by side.

Works on the dictionaries of ``scoring.summary``; computes nothing but percentages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from streamsim.plural import counted
from streamsim.report.console import say

_NAMES = {
    "task_accuracy": "task accuracy",
    "storm_br": "Storm-BR",
    "storm_br_unsmoothed": "Storm-BR, unsmoothed",
    "storm_br_attr": "Storm-BR-Attr",
    "overconfidence": "overconfidence",
    "underconfidence": "underconfidence",
    "kci": "KCI",
    "epi": "Epi",
    "worst_cell": "worst cell",
    "cause_f1": "cause F1",
    "status_balanced_accuracy": "status balanced accuracy",
    "known_drop": "known drop, low − high",
    "high_intensity": "high intensity",
}
_BINS = {"low": "1–3", "mid": "4–6", "high": "7–10"}


def print_scores(scores: Mapping[str, Any], console: Console) -> None:
    """Print the tables of one score dictionary; of a run without a single answer there is none to print."""
    if nothing_answered(scores):
        say(console, "nothing was answered: no scores")
        return
    if "subsets" in scores:
        console.print(_subsets_table(scores, console))
    else:
        console.print(_figures_table(scores, console))
        if scores["cells_n"]:
            console.print(_cells_table(scores, console))
    for subset in scores.get("subsets", {"": scores}).values():
        say(console, _valid_line(subset, with_name="subsets" in scores))


def nothing_answered(scores: Mapping[str, Any]) -> bool:
    """The figures are those of no answer at all: what they come to says nothing of anybody."""
    partial = scores.get("partial")
    return partial is not None and partial["answered"] == 0


def shown_notices(scores: Mapping[str, Any]) -> list[str]:
    """The notices that belong to what is printed: those about altered files, then those about figures."""
    notices: list[str] = scores["notices"]
    return notices[: len(scores.get("altered", ()))] if nothing_answered(scores) else notices


def _figures_table(scores: Mapping[str, Any], console: Console) -> Table:
    repeats = scores.get("repeats")
    title = f"{scores['subset']}: {counted(scores['n'], 'query')}, {counted(scores['episodes'], 'episode')}"
    table = _table(console, title + (f", mean of {repeats} repeats" if repeats else ""))
    table.add_column("figure")
    table.add_column("%", justify="right")
    table.add_column("95 % interval", justify="right")
    if repeats:
        table.add_column("least – greatest", justify="right")
    for key, name in _NAMES.items():
        if scores[key] is None:
            continue
        named = key == "worst_cell" and not repeats
        label = f"{name} ({scores['worst_cell_name'].replace('_', ' ')})" if named else name
        several = scores["episodes"] > 1  # an interval over one episode would be a point
        row = [label, _value(scores[key]), _value(scores["ci95"].get(key, "") if several else None)]
        if repeats:
            spread = scores["spread"].get(key)
            row.append(_value([spread["min"], spread["max"]]) if spread else "")
        table.add_row(*row)
    return table


def _cells_table(scores: Mapping[str, Any], console: Console) -> Table:
    full = scores["scope"] == "full"
    table = _table(console, "answer and status right, % (items)" if full else "answer right, % (items)")
    table.add_column("change intensity")
    for status in ("known", "uncertain"):
        table.add_column(status, justify="right")
    shares = scores["cells"] if full else scores["cells_task"]
    for level, range_text in _BINS.items():
        row = [f"{level} ({range_text})"]
        for status in ("known", "uncertain"):
            cell = f"{level}_{status}"
            row.append(f"{_value(shares[cell])} ({scores['cells_n'][cell]})" if cell in shares else "—")
        table.add_row(*row)
    return table


def _subsets_table(scores: Mapping[str, Any], console: Console) -> Table:
    table = _table(console, f"{counted(scores['n'], 'query')} in {len(scores['subsets'])} subsets, %")
    columns = {
        "task_accuracy": "accuracy",
        "storm_br": "Storm-BR",
        "storm_br_ci95": "95 %",
        "storm_br_attr": "BR-Attr",
        "overconfidence": "OC",
        "underconfidence": "UC",
        "kci": "KCI",
        "epi": "Epi",
        "worst_cell": "worst",
        "cause_f1": "cause F1",
    }
    table.add_column("subset")
    table.add_column("n", justify="right")
    for name in columns.values():
        table.add_column(name, justify="right", no_wrap=True)
    for name, subset in scores["subsets"].items():
        table.add_row(name, str(subset["n"]), *(_value(subset[key]) for key in columns))
    macro = {**scores["macro"], "storm_br_ci95": ""}
    table.add_row("macro mean", "", *(_value(macro[key]) for key in columns))
    return table


def _valid_line(subset: Mapping[str, Any], *, with_name: bool) -> str:
    rates = ", ".join(
        f"{probe} {_value(rate)} %" for probe, rate in subset["valid_rate"].items() if rate is not None
    )
    return (f"{subset['subset']}: " if with_name else "") + f"valid texts: {rates or 'none was read'}"


def _table(console: Console, title: str) -> Table:
    plain = not console.is_terminal
    return Table(title=title, title_justify="left", box=None if plain else box.SIMPLE_HEAD, pad_edge=False)


def _value(value: float | list[float] | str | None) -> str:
    """A share or an interval of shares in per cent, a dash for None; texts as they are."""
    if isinstance(value, list):
        return " – ".join(f"{100 * share:.1f}" for share in value)
    if isinstance(value, float):
        return f"{100 * value:.1f}"
    return "—" if value is None else value
