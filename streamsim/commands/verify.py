"""``streamsim verify``: prove from a run's journals that nothing came early and nothing was changed."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from streamsim.errors import UsageError
from streamsim.notice import notice
from streamsim.plural import counted
from streamsim_protocol.terminal import for_terminal

if TYPE_CHECKING:
    from streamsim.journal.verify import Offence, RunProof, SessionProof

HELP = "prove from a run's journals that nothing was released early and nothing was changed since"
EPILOG = """\
examples:
  streamsim verify runs/20260817-120000-random
  streamsim verify RUN --digest D        (the digest that was printed at the end of the run)
  streamsim verify RUN --against DATASET (decodes the videos anew and compares every picture)

Sessions that were broken off, by an interrupt or because the agent hung, are listed: nothing is wrong
with their journals, but the run is not complete.

exit codes: 0 verified, 1 an offence was found (the first is named), or only a prefix could be verified
because a session has no end or no journal, 2 no such run
"""

MIN_DIGEST_DIGITS = 16
"""Fewer could be met by trying."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A run, and what to hold it against."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument(
        "--digest",
        metavar="D",
        help=f"the run's digest, as printed at its end; its first {MIN_DIGEST_DIGITS} digits or more do",
    )
    parser.add_argument("--against", type=Path, metavar="DATASET", help="compare every picture and prompt")
    parser.add_argument(
        "--same", type=Path, metavar="RUN2", help="also compare with another lockstep run, line by line"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(args: argparse.Namespace) -> int:
    """Verify and print; 1 for an offence or a prefix only."""
    from streamsim.journal.verify import verify_run

    digest = None if args.digest is None else read_digest(args.digest)
    if args.same is not None:
        from streamsim.journal.compare import require_lockstep

        require_lockstep(args.run, args.same)
    proof = verify_run(args.run, digest=digest)
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
        print("\n".join(map(for_terminal, _lines(proof, offence, compared, digest))))
    return 1 if offence is not None or proof.prefix_only else 0


def _compare_with_dataset(run: Path, dataset: Path, *, quiet: bool) -> Offence | None:
    from streamsim.episodes.dataset import load_dataset
    from streamsim.journal.redecode import compare_with_dataset

    def tell(episode: str) -> None:
        if not quiet:
            notice(f"decoding {episode}")

    return compare_with_dataset(run, load_dataset(dataset), on_episode=tell)


def read_digest(text: str) -> str:
    """A digest or its beginning, in lower case; ``UsageError`` for anything else."""
    digest = text.strip().lower()
    if not re.fullmatch(f"[0-9a-f]{{{MIN_DIGEST_DIGITS},64}}", digest):
        raise UsageError(
            f"--digest: expected the 64 hex digits that were printed at the run's end, or the first "
            f"{MIN_DIGEST_DIGITS} or more of them, got {text!r}"
        )
    return digest


def _lines(proof: RunProof, offence: Offence | None, compared: list[str], digest: str | None) -> list[str]:
    if offence is not None:
        return [f"not verified: {offence}"]
    counting = [session for session in proof.sessions if session.newest]
    others = len(proof.sessions) - len(counting)
    journals = counted(len(counting), "journal")
    checked = ", ".join(
        (
            journals,
            counted(sum(session.lines for session in counting), "line"),
            counted(sum(session.frames for session in counting), "frame"),
            counted(sum(session.probes for session in counting), "probe"),
        )
    )
    beside = f"beside them: {counted(others, 'other attempt')}, verified too, not in the digest"
    broken_off = [f"  not complete: {_session(session)} ({session.ended})" for session in proof.incomplete]
    if proof.prefix_only:
        unsealed = [session.file for session in counting if not session.sealed]
        return [
            f"prefix verified: {checked}; what there is holds, but it is not the whole run",
            *(f"  no end: {name}" for name in unsealed),
            *(f"  no journal: {name}" for name in proof.missing),
            *broken_off,
            *([beside] if others else []),
            "continue the run with `streamsim run … --resume`, then verify again",
        ]
    against = f", equal to {' and '.join(compared)}" if compared else ""
    first = f"verified: {checked}{against}"
    if broken_off:
        first = f"verified, but the run is not complete: {checked}{against}"
    return [
        first,
        *broken_off,
        *([beside] if others else []),
        f"digest: {proof.digest}" + ("   (as --digest says)" if digest else ""),
    ]


def _session(session: SessionProof) -> str:
    return session.episode + (f", repeat {session.repeat}" if session.repeat > 1 else "")


def _json(proof: RunProof, offence: Offence | None) -> str:
    import msgspec

    return msgspec.json.encode(
        {
            "verified": offence is None and not proof.prefix_only,
            "prefix_only": offence is None and proof.prefix_only,
            "complete": not (proof.incomplete or proof.prefix_only),
            "offence": offence,
            "run": proof.run,
            "digest": proof.digest,
            "missing": proof.missing,
            "incomplete": [
                {"file": session.file, "episode": session.episode, "ended": session.ended}
                for session in proof.incomplete
            ],
            "sessions": proof.sessions,
        }
    ).decode()
