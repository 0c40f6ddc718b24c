"""``streamsim verify``: prove from a run's journals that nothing came early and nothing was changed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from streamsim.notice import notice
from streamsim_protocol.terminal import for_terminal

if TYPE_CHECKING:
    from streamsim.journal.verify import Offence, RunProof

HELP = "prove from a run's journals that nothing was released early and nothing was changed since"
EPILOG = """\
examples:
  streamsim verify runs/20260817-120000-random
  streamsim verify RUN --digest 5f0c…  (the digest that was printed at the end of the run)
  streamsim verify RUN --against DATASET   (decodes the videos anew and compares every picture)

exit codes: 0 verified, 1 an offence was found (the first is named), or only a prefix could be verified
because a session has no end or no journal, 2 no such run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run, and what to hold it against."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--digest", metavar="D", help="the run's digest, as printed at its end")
    parser.add_argument("--against", type=Path, metavar="DATASET", help="compare every picture and prompt")
    parser.add_argument(
        "--same", type=Path, metavar="RUN2", help="also compare with another lockstep run, line by line"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Verify and print; 1 for an offence or a prefix only."""
    from streamsim.journal.verify import verify_run

    proof = verify_run(args.run, digest=args.digest)
    offence = proof.offence
    compared = []
    if offence is None and args.against is not None:
        offence = _compare_with_dataset(args.run, args.against, quiet=args.json)
        compared.append("its dataset")
    if offence is None and args.same is not None:
        from streamsim.journal.compare import compare_runs

        offence = compare_runs(args.run, args.same)
        compared.append(f"run {args.same}")
    if args.json:
        print(_json(proof, offence))
    else:
        print("\n".join(map(for_terminal, _lines(proof, offence, compared))))
    return 1 if offence is not None or proof.prefix_only else 0


def _compare_with_dataset(run: Path, dataset: Path, *, quiet: bool) -> Offence | None:
    from streamsim.episodes.dataset import load_dataset
    from streamsim.journal.redecode import compare_with_dataset

    def tell(episode: str) -> None:
        if not quiet:
            notice(f"decoding {episode}")

    return compare_with_dataset(run, load_dataset(dataset), on_episode=tell)


def _lines(proof: RunProof, offence: Offence | None, compared: list[str]) -> list[str]:
    lines = sum(session.lines for session in proof.sessions)
    frames = sum(session.frames for session in proof.sessions)
    probes = sum(session.probes for session in proof.sessions)
    checked = f"{len(proof.sessions)} journals, {lines} lines, {frames} frames, {probes} probes"
    if offence is not None:
        return [f"not verified: {offence}"]
    if proof.prefix_only:
        unsealed = [session.file for session in proof.sessions if session.newest and not session.sealed]
        return [
            f"prefix verified: {checked}; what there is holds, but it is not the whole run",
            *(f"  no end: {name}" for name in unsealed),
            *(f"  no journal: {name}" for name in proof.missing),
            "continue the run with `streamsim run … --resume`, then verify again",
        ]
    against = f", equal to {' and '.join(compared)}" if compared else ""
    return [f"verified: {checked}{against}", f"digest: {proof.digest}"]


def _json(proof: RunProof, offence: Offence | None) -> str:
    import msgspec

    return msgspec.json.encode(
        {
            "verified": offence is None and not proof.prefix_only,
            "prefix_only": offence is None and proof.prefix_only,
            "offence": offence,
            "run": proof.run,
            "digest": proof.digest,
            "missing": proof.missing,
            "sessions": proof.sessions,
        }
    ).decode()
