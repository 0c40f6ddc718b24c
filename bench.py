"""Benchmarks, each against something outside, in one run, as a ratio: ``python bench.py NAME``.

    bootstrap   intervals of 10,000 items in 630 episodes against a plain loop over resamples
    frames      a frame's cost and lateness against a bare loop, queries against offline ways
    kill        SIGKILL of the server at random moments: what is lost, does it resume
    models      streaming prefill against generate, time to first token against history (needs torch)
    rescore     simulated time against real runs at other speeds
    stall       light sessions beside a stalled agent, with and without the stall
    time        skip against realtime, drift over real minutes, lateness against a bare loop

A benchmark is a module of ``streamsim.bench`` with ``add_arguments(parser)`` and
``measure(args) -> Report``. It exits with 0 when its target was met, with 1 when not.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict

BENCHMARKS = {
    "bootstrap": "streamsim.bench.bootstrap",
    "frames": "streamsim.bench.frames",
    "kill": "streamsim.bench.kill",
    "models": "streamsim_agents.vlm.bench",
    "time": "streamsim.bench.timing",
    "rescore": "streamsim.bench.rescoring",
    "stall": "streamsim.bench.stall",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark; 0 when its target was met, else 1."""
    parser = argparse.ArgumentParser(prog="bench.py", description=__doc__.splitlines()[0])
    names = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    for name, module_name in BENCHMARKS.items():
        module = importlib.import_module(module_name)
        about = (module.measure.__doc__ or "").strip().splitlines()[0]
        sub = names.add_parser(name, help=about, description=about)
        module.add_arguments(sub)
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        sub.set_defaults(measure=module.measure)
    args = parser.parse_args(argv)
    report = args.measure(args)
    if args.json:
        machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        print(json.dumps({"benchmark": args.name, **asdict(report), "machine": machine}, indent=2))
    else:
        print("\n".join(report.lines))
        print("target met" if report.met else "target NOT met")
    return 0 if report.met else 1


if __name__ == "__main__":
    sys.exit(main())
