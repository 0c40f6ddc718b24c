"""Journals written and read back: whole, torn, altered, and cut off by a kill or a full disk."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsim.errors import RunError
from streamsim.events import (
    Acknowledged,
    AgentFailed,
    AgentReady,
    AnyEvent,
    ChainClosed,
    ClockTaken,
    EndSent,
    FrameSent,
    FrameSettled,
    GapSent,
    HarnessReported,
    Instant,
    LateTextReceived,
    MediaEnded,
    ProbeRead,
    ProbeSent,
    QueryPlan,
    SessionEnded,
    StatsReported,
    TextReceived,
    TurnClosed,
    TurnEnded,
    TurnStarted,
    WarningRaised,
    WorkingChanged,
)
from streamsim.journal.read import read_entries, read_journal
from streamsim.journal.write import FIRST_DIGEST, JournalSync, JournalWriter, encode_line
from streamsim.testing import SimulatedAgent, say, seconds, tiny_config, tiny_query, tiny_simulation

NASTY = 'line\nbreak, "quotes", \\ back, \u2028, \x00, “schön” 漢字 🎬, {"digest":"0"}'

EVERYTHING: list[AnyEvent] = [
    tiny_config().to_event(
        (QueryPlan(query="q1", id=NASTY, kind="choice", media_ns=1, due_media_ns=2**53 + 1, option_count=4),)
    ),
    AgentReady(agent=NASTY, capabilities=("ticks",), frames="latest", libraries={"torch": NASTY}, begin_ns=5),
    ClockTaken(media_ns=0, wall_ns=7, rate=0.1, reason="start"),
    FrameSent(k=0, media_ns=0, due_wall_ns=7, size_bytes=9, digest="ab" * 32, seq=2, held_by="credit"),
    GapSent(from_k=1, to_k=3, reason="no_picture", seq=3),
    ProbeSent(
        query="q1",
        probe="task",
        turn=1,
        media_ns=1,
        due_media_ns=1,
        due_wall_ns=None,
        text=NASTY,
        seq=4,
        held_by="decoder",
    ),
    Acknowledged(seq=4),
    FrameSettled(k=0, outcome="failed", waited_ns=1, service_ns=2, error=NASTY),
    TurnStarted(turn=1, seen_media_ns=None, waited_ns=3),
    TextReceived(turn=1, text=NASTY),
    TurnClosed(turn=1, reason="timed_out"),
    ChainClosed(query="q1", outcome="timed_out"),
    LateTextReceived(turn=1, text=""),
    TurnEnded(
        turn=1,
        reason="closed",
        service_ns=4,
        first_text_ns=3,
        marks={NASTY: 2**62},
        dropped_chars=5,
        error=NASTY,
    ),
    ProbeRead(query="q1", probe="task", turn=1, letters="", valid=False),
    WorkingChanged(active=True),
    StatsReported(values={"memory_bytes": 0.1, NASTY: -1e300}),
    AgentFailed(phase="save", error=NASTY),
    WarningRaised(code="video", detail=NASTY),
    MediaEnded(samples=4),
    EndSent(reason="completed"),
    HarnessReported(watched_ns=1, server_lag_p99_ns=2, server_lag_max_ns=3),
    SessionEnded(reason="completed", detail=NASTY, saved="cd" * 32, saved_bytes=6, unsettled_frames=1),
]


@pytest.fixture(scope="module")
def sync() -> Iterator[JournalSync]:
    with JournalSync(interval_s=0.001) as sync:
        yield sync


def write(path: Path, events: list[tuple[Instant, AnyEvent]], sync: JournalSync) -> JournalWriter:
    writer = JournalWriter(path, sync)
    for at, event in events:
        writer.write(at, event)
    writer.close()
    return writer


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, sync: JournalSync) -> Path:
    """A journal of five lines."""
    path = tmp_path_factory.mktemp("journal") / "short.1.1.jsonl"
    events = [tiny_config().to_event(()), *EVERYTHING[2:4], TextReceived(turn=1, text=NASTY), EVERYTHING[-1]]
    write(path, [(Instant(n, n * 10), event) for n, event in enumerate(events)], sync)
    return path


class TestLines:
    def test_every_kind_of_event_is_read_back(self, tmp_path: Path, sync: JournalSync) -> None:
        assert {type(event) for event in EVERYTHING} == set(get_args(AnyEvent))
        written = [(Instant(n, 2**62 + n), event) for n, event in enumerate(EVERYTHING)]
        writer = write(tmp_path / "all.1.1.jsonl", written, sync)
        journal = read_journal(writer.path)
        assert journal.fault is None
        assert list(journal.events()) == written
        assert [entry.n for entry in journal.entries] == list(range(1, len(EVERYTHING) + 1))
        assert journal.digest == writer.digest and journal.complete
        assert journal.started == EVERYTHING[0] and journal.ended == EVERYTHING[-1]

    def test_a_line_is_one_object_without_double_keys(self) -> None:
        """Anybody's JSON reader must see the same: the line's own keys and the event's never meet."""
        for event in EVERYTHING:
            line, digest = encode_line(3, Instant(1, 2), event, FIRST_DIGEST)
            assert line.endswith(b"\n") and line.count(b"\n") == 1
            own = msgspec.json.decode(msgspec.json.encode(event))
            whole = msgspec.json.decode(line)
            head = {"n": 3, "at_media_ns": 1, "at_wall_ns": 2, "digest": digest}
            assert not own.keys() & head.keys()
            assert whole == own | head
            assert list(whole)[:3] == ["n", "at_media_ns", "at_wall_ns"] and list(whole)[-1] == "digest"

    def test_the_chain_as_the_format_says(self, short: Path) -> None:
        """SHA-256 over the hex text of the digest before, then the line as it reads without its own."""
        before = "0" * 64
        for line in short.read_text(encoding="utf-8").split("\n")[:-1]:
            body, digest = line[: line.rindex(',"digest":')] + "}", msgspec.json.decode(line)["digest"]
            assert hashlib.sha256((before + body).encode()).hexdigest() == digest
            before = digest

    def test_a_journal_is_written_once(self, short: Path, sync: JournalSync) -> None:
        with pytest.raises(FileExistsError):
            JournalWriter(short, sync)

    def test_a_whole_session(self, tmp_path: Path, sync: JournalSync) -> None:
        agent = SimulatedAgent(observe=lambda k: seconds(0.3), answer=lambda probe: say("C", seconds(0.2)))
        simulation = tiny_simulation([tiny_query("a", 1), tiny_query("b", 1)], agent, samples=4).run()
        writer = write(tmp_path / "session.1.1.jsonl", simulation.events, sync)
        assert list(read_journal(writer.path).events()) == simulation.events

    def test_one_system_call_for_each_event(
        self, tmp_path: Path, sync: JournalSync, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, sizes = os.write, []

        def counting(descriptor: int, data: memoryview) -> int:
            written = real(descriptor, data)
            sizes.append(written)
            return written

        writer = JournalWriter(tmp_path / "a.1.1.jsonl", sync)
        monkeypatch.setattr(os, "write", counting)
        for event in EVERYTHING:
            writer.write(Instant(0, 0), event)
        writer.close()
        lines = writer.path.read_bytes().splitlines(keepends=True)
        assert sizes == [len(line) for line in lines]


class TestFaults:
    def test_a_torn_last_line_reads_back_to_the_line_before(self, short: Path, tmp_path: Path) -> None:
        data = short.read_bytes()
        whole = read_journal(short).entries
        last = data.rindex(b"\n", 0, -1) + 1
        path = tmp_path / "torn.jsonl"
        for size in range(last, len(data)):
            path.write_bytes(data[:size])
            journal = read_journal(path)
            assert journal.entries == whole[:-1]
            assert journal.fault == (None if size == last else "line 5: torn")
            assert journal.ended is None and not journal.complete

    def test_one_altered_byte_is_found_wherever_it_is(self, short: Path) -> None:
        data = short.read_bytes()
        whole = read_journal(short).entries
        for position in range(len(data)):
            line = data.count(b"\n", 0, position)
            flip = (0x01, 0x20, 0x80)[position % 3]
            entries, fault = read_entries(
                data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :]
            )
            assert fault is not None and fault.startswith(f"line {line + 1}: ")
            assert entries == whole[:line]

    @settings(max_examples=100, deadline=None)
    @given(data=st.data())
    def test_any_edit_is_found(self, short: Path, data: st.DataObject) -> None:
        """A piece replaced by anything else: only what stands before it is believed."""
        whole = short.read_bytes()
        start = data.draw(st.integers(0, len(whole)))
        stop = data.draw(st.integers(start, min(start + 80, len(whole))))
        edited = whole[:start] + data.draw(st.binary(max_size=80)) + whole[stop:]
        entries, fault = read_entries(edited)
        trusted = sum(map(len, whole.splitlines(keepends=True)[: len(entries)]))
        assert entries == read_journal(short).entries[: len(entries)]
        assert edited[:trusted] == whole[:trusted]
        assert fault is not None or edited == whole[:trusted]

    @pytest.mark.parametrize(
        ("order", "believed"),
        [([0, 1, 3, 4], 2), ([0, 2, 1, 3, 4], 1), ([0, 1, 1, 2, 3, 4], 2), ([1, 2, 3, 4], 0)],
        ids=["dropped", "swapped", "doubled", "beheaded"],
    )
    def test_lines_in_another_order(
        self, short: Path, tmp_path: Path, order: list[int], believed: int
    ) -> None:
        lines = short.read_bytes().splitlines(keepends=True)
        path = tmp_path / "moved.jsonl"
        path.write_bytes(b"".join(lines[n] for n in order))
        journal = read_journal(path)
        assert len(journal.entries) == believed
        assert journal.fault is not None and "expected n" in journal.fault

    def test_a_renumbered_line_breaks_the_chain(self, short: Path, tmp_path: Path) -> None:
        lines = short.read_bytes().splitlines(keepends=True)
        del lines[2]
        path = tmp_path / "renumbered.jsonl"
        path.write_bytes(
            b"".join(
                line.replace(b'{"n":%d,' % (n + 2), b'{"n":%d,' % (n + 1)) for n, line in enumerate(lines)
            )
        )
        assert read_journal(path).fault == "line 3: the digest does not continue the chain"

    def test_empty_and_absent_files(self, tmp_path: Path) -> None:
        (tmp_path / "empty.jsonl").touch()
        journal = read_journal(tmp_path / "empty.jsonl")
        assert (journal.entries, journal.fault, journal.digest) == ((), None, FIRST_DIGEST)
        with pytest.raises(RunError, match="expected SessionStarted in the first line, got none"):
            _ = journal.started
        with pytest.raises(RunError, match=r"cannot read journal .*: no such file"):
            read_journal(tmp_path / "absent.jsonl")


CHILD = """
import os, sys
from pathlib import Path
from streamsim.events import Instant, TextReceived
from streamsim.journal.write import JournalSync, JournalWriter
{setup}
with JournalSync(0.001) as sync:
    writer = JournalWriter(Path(sys.argv[1]), sync)
    n = 0
    try:
        while True:
            writer.write(Instant(n, n), TextReceived(turn=n, text="x" * (n * 37 % 500)))
            n += 1
            os.write(1, b"%d\\n" % n)
    except OSError as error:
        os.write(1, b"failed %d\\n" % error.errno)
    writer.close()
"""


def start_child(path: Path, setup: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD.format(setup=setup), str(path)], stdout=subprocess.PIPE
    )


def check_prefix(path: Path, lines: int) -> None:
    """At least so many lines are there, each as it was written."""
    journal = read_journal(path)
    assert len(journal.entries) >= lines
    for n, entry in enumerate(journal.entries):
        assert entry.at == Instant(n, n)
        assert entry.event == TextReceived(turn=n, text="x" * (n * 37 % 500))
    assert journal.fault in (None, f"line {len(journal.entries) + 1}: torn")


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 2, 57, 800])
def test_a_kill_loses_at_most_the_line_being_written(tmp_path: Path, lines: int) -> None:
    with start_child(tmp_path / "killed.jsonl") as child:
        assert child.stdout is not None
        confirmed = 0
        while confirmed < lines:
            confirmed = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().splitlines(keepends=True)
        if rest and rest[-1].endswith(b"\n"):
            confirmed = int(rest[-1])
    check_prefix(tmp_path / "killed.jsonl", confirmed)


@pytest.mark.slow
def test_a_full_disk_tears_no_line(tmp_path: Path) -> None:
    """A limit on the file's size in the middle of a line, as a full disk would be."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))"
    with start_child(tmp_path / "full.jsonl", limit) as child:
        assert child.stdout is not None
        *confirmed, failed = child.stdout.read().splitlines()
    assert failed == b"failed %d" % errno.EFBIG and child.returncode == 0
    journal = read_journal(tmp_path / "full.jsonl")
    assert journal.fault is None and len(journal.entries) == int(confirmed[-1])
    assert 4000 < (tmp_path / "full.jsonl").stat().st_size <= 5000


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class TestSync:
    def test_what_was_written_is_synced_and_what_was_not_is_left_alone(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, synced, happened = os.fdatasync, [], threading.Condition()

        def watching(descriptor: int) -> None:
            real(descriptor)
            with happened:
                synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
                happened.notify_all()

        monkeypatch.setattr(os, "fdatasync", watching)
        before = open_descriptors()
        with JournalSync(interval_s=0.001) as sync:
            busy = JournalWriter(tmp_path / "busy.jsonl", sync)
            idle = JournalWriter(tmp_path / "idle.jsonl", sync)
            third = JournalWriter(tmp_path / "third.jsonl", sync)
            for writer in (busy, busy, third, third, third):
                known = len(synced)
                writer.write(Instant(0, 0), MediaEnded(samples=0))
                with happened:
                    assert happened.wait_for(lambda known=known: len(synced) > known, timeout=30)  # type: ignore[misc]
            assert synced == [str(busy.path)] * 2 + [str(third.path)] * 3
            for writer in (idle, busy, third):
                writer.close()
                writer.close()
        assert synced[5:] == [str(writer.path) for writer in (idle, busy, third)]
        assert open_descriptors() == before

    def test_a_failed_sync_is_told_at_the_close(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, failed, went_on = os.fdatasync, threading.Event(), threading.Event()

        def failing_once(descriptor: int) -> None:
            if not failed.is_set():
                failed.set()
                raise OSError(errno.EIO, "Input/output error")
            real(descriptor)
            went_on.set()

        monkeypatch.setattr(os, "fdatasync", failing_once)
        with JournalSync(interval_s=0.001) as sync:
            writer = JournalWriter(tmp_path / "a.jsonl", sync)
            writer.write(Instant(0, 0), MediaEnded(samples=0))
            assert failed.wait(30)
            second = JournalWriter(tmp_path / "b.jsonl", sync)
            second.write(Instant(0, 0), MediaEnded(samples=0))
            assert went_on.wait(30)
            with pytest.raises(OSError, match="Input/output error"):
                writer.close()
            second.close()

    def test_many_journals_come_and_go_under_it(self, tmp_path: Path) -> None:
        before = open_descriptors()
        with JournalSync(interval_s=0.0001) as sync:
            for n in range(100):
                writer = JournalWriter(tmp_path / f"{n}.jsonl", sync)
                writer.write(Instant(0, 0), MediaEnded(samples=n))
                writer.close()
        assert open_descriptors() == before
        assert all(read_journal(tmp_path / f"{n}.jsonl").fault is None for n in range(100))
