"""``streamsim rescore``: numbers that make no sense are one line, at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamsim.cli import main
from streamsim.simulation import say
from streamsim.testing import SimulatedAgent, seconds, tiny_query, tiny_simulation
from tests.streamsim.journal.simulated_run import write_run

FACTORS = "--compute-factor: expected a number from 0.001 to 1,000, such as 0.5 or 1/3, got"
DEADLINES = "--deadline: expected seconds from 0.001 to 1,000,000, got"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    agent = SimulatedAgent(observe=lambda k: seconds(0.1), answer=lambda probe: say("A", seconds(0.2)))
    simulation = tiny_simulation([tiny_query("q", 1.0)], agent, samples=3).run()
    return write_run(tmp_path / "run", simulation, 1).parents[1]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        *(
            (f"--compute-factor={text}", f"{FACTORS} {text!r}")
            for text in (
                *("0", "-1", "nan", "inf", "-inf", "x", "", "1/0", "1/1001", "1001", "1e300", "1e-300"),
                *("1e999999999", "1e-999999999", "1e999999999/1e999999999", "0.0009999999999999999999"),
            )
        ),
        *(
            (f"--deadline={text}", f"{DEADLINES} {float(text)!r}")
            for text in ("0", "-1", "nan", "inf", "1e300", "0.0009", "1000001")
        ),
    ],
)
def test_numbers_without_sense(run: Path, option: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", str(run), option]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"streamsim rescore: {says}\n")


@pytest.mark.parametrize("factor", ["0.001", "1/1000", "1000", "1e3", "1/3", "1.000000000000000000001"])
def test_numbers_at_the_bounds(run: Path, factor: str, capsys: pytest.CaptureFixture[str]) -> None:
    for deadline in ("0.001", "1e6"):
        assert main(["rescore", str(run), "--compute-factor", factor, "--deadline", deadline, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["sessions"] == 1


@pytest.mark.parametrize("value", ["nan", "inf", "-0.1", "1e300", "1000001", "true", '"1"'])
def test_service_times_without_sense(
    run: Path, tmp_path: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "p.toml"
    profile.write_text(f"frame_s = 1e6\ntask_s = 0\nstatus_s = 1_000_000\ncause_s = {value}\n")
    assert main(["rescore", str(run), "--service-profile", str(profile)]) == 2
    says = f"service profile {str(profile)!r}: cause_s: expected seconds from 0 to 1,000,000, got "
    printed = capsys.readouterr().err
    assert printed.startswith(f"streamsim rescore: {says}") and printed.count("\n") == 1


def test_both_stand_in_one_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0.1 s for the frame of the same instant and 0.2 s for the answer; then a machine of twice the speed."""
    assert main(["rescore", str(run), "--compute-factor", "0.5"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("1 session played again in simulated time: compute_factor 1/2\n")
    (row,) = [line.split() for line in out.splitlines() if line.startswith("task") and "due →" in line]
    assert row == [*("task", "due", "→", "final", "1", "0"), *("0.300", "→", "0.150") * 2]
    assert out.count("from → to") == 1 and out.count("n too small") == 1
    assert out.count("first = final; sent = due (to the digit shown)") == 1


def test_deadlines_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """Here it cuts answers off, with ``run`` it counts; both say so, and name the other."""
    told = []
    for command in ("rescore", "run"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        told.append(" ".join(capsys.readouterr().out.split()))
    assert "cut answers off S seconds after due: what `run --answer-timeout` does" in told[0]
    assert "only count the answers later than S seconds after due; --answer-timeout is what cuts" in told[1]
