"""``streamsim doctor``: what this machine has and lacks, which agents there are, what the harness costs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsim.notice import notice
from streamsim_protocol.terminal import for_terminal

if TYPE_CHECKING:
    from streamsim.launch.doctor import Check

HELP = "try what a run needs: versions, codecs, GPU, port, disk; list agents; measure the harness"
EPILOG = """\
examples:
  streamsim doctor
  streamsim doctor --agents      (all agents with their arguments, and no checks)
  streamsim doctor --timing      (the harness's own floor here, about 20 s)

exit codes: 0 all is well, 1 something is bad
"""

TIMING_SECONDS = 7.0
"""Two runs of 70 frames and 77 queries: enough for a 90th percentile."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to look at."""
    parser.add_argument("--agents", action="store_true", help="only list all agents with their arguments")
    parser.add_argument("--agent-python", metavar="PATH", help="with --agents: those of another interpreter")
    parser.add_argument("--timing", action="store_true", help="measure the harness's own floor")
    parser.add_argument(
        "--timing-seconds",
        type=float,
        default=TIMING_SECONDS,
        metavar="S",
        help="media per run (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Check, list, measure; 1 if anything is bad."""
    from streamsim.errors import UsageError
    from streamsim.launch.doctor import list_agents, run_checks

    if not 1.0 <= args.timing_seconds <= 3_600.0:
        raise UsageError(f"--timing-seconds: expected 1 to 3600, got {args.timing_seconds:g}")
    if args.agent_python is not None and not args.agents:
        raise UsageError("--agent-python: expected --agents with it")
    checks = [] if args.agents else run_checks(_here())
    agents = list_agents(args.agent_python) if args.agents else None
    timing = _measure(args.timing_seconds, quiet=args.json) if args.timing else None
    if args.json:
        _print_json(checks, agents, timing)
    else:
        if agents is None:
            print("\n".join(map(for_terminal, _check_lines(checks))))
        else:
            print("\n".join(map(for_terminal, _agent_lines(agents))))
        if timing is not None:
            print("\n".join(_timing_lines(timing)))
    return 1 if any(check.status == "bad" for check in checks) else 0


def _here() -> Path:
    """The current folder by its name, or as it is: one that was deleted has none, and is bad as a place."""
    try:
        return Path.cwd()
    except OSError:
        return Path()


def _measure(seconds: float, *, quiet: bool) -> dict[str, dict[str, Any]]:
    from streamsim.launch.floor import measure_floor

    def tell(agent: str) -> None:
        if not quiet:
            notice(f"playing {seconds:g} s to {agent}")

    return measure_floor(seconds, on_agent=tell)


def _print_json(
    checks: list[Check], agents: list[dict[str, Any]] | None, timing: dict[str, dict[str, Any]] | None
) -> None:
    import msgspec

    report: dict[str, Any] = {"checks": checks} if agents is None else {"agents": agents}
    if timing is not None:
        report["timing"] = timing
    print(msgspec.json.encode(report).decode())


def _check_lines(checks: list[Check]) -> list[str]:
    lines = []
    for check in checks:
        lines.append(f"{check.status:4}  {check.name}: {check.detail}")
        if check.hint:
            lines.append(f"      hint: {check.hint}")
    return lines


def _agent_lines(agents: list[dict[str, Any]]) -> list[str]:
    lines = []
    for agent in agents:
        lines.append(f"{agent['name']}: {agent['problem'] or agent['summary']}")
        for argument in agent["arguments"]:
            default = argument["default"]
            given = "must be given" if default is None else f"default {default}"
            meaning = argument.get("meaning")  # an older streamsim of another interpreter has none
            lines.append(
                f"  {argument['name']} ({argument['type']}, {given})" + (f": {meaning}" * bool(meaning))
            )
    return lines


def _timing_lines(timing: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["the harness's own floor, in milliseconds:"]
    for agent, figures in timing.items():
        lines.append(f"  {agent} ({figures['overhead']['n']} queries): {figures['verdict']['grade']}")
        for name, title in (
            ("due_to_sent", "due to sent"),
            ("transport", "to the agent and back"),
            ("frame_transport", "the same for frames"),
            ("overhead", "beyond the agent's own service"),
        ):
            lines.append(f"    {title}: {_spread(figures[name])}")
        lines.append(f"    the agent's own service: {_spread(figures['service'])}")
        lines += [f"    {reason}" for reason in figures["verdict"]["reasons"]]
    return lines


def _spread(figures: dict[str, Any]) -> str:
    shown = [name for name in ("p50", "p90", "p95", "p99", "max") if figures.get(name) is not None]
    return ", ".join(f"{name} {figures[name] * 1e3:.2f}" for name in shown) or "unknown"
