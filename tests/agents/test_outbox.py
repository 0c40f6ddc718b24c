"""What is said, in order; what is cut at a fence; who waits when nobody listens."""

from __future__ import annotations

import threading

import pytest

from streamsim_agents.agent import Turn
from streamsim_agents.outbox import Outbox
from streamsim_protocol import messages as wire

PATIENCE_S = 30.0


def make_turn(n: int = 1) -> Turn:
    return Turn(n, media_ns=0, seen_media_ns=None)


def end(turn: Turn, reason: wire.TurnEndReason = "finished") -> wire.TurnEnded:
    return wire.TurnEnded(turn=turn.id, reason=reason)


def drain(outbox: Outbox) -> list[wire.AgentMessage]:
    taken = []
    while (message := outbox.take()) is not None:
        taken.append(message)
    return taken


def test_messages_keep_their_order_and_wake_the_sender() -> None:
    woken: list[int] = []
    outbox = Outbox(lambda: woken.append(1))
    turn = make_turn()
    outbox.put(wire.Settled(k=0, outcome="processed"))
    outbox.put_now(wire.Ack())
    outbox.put_text(turn, "A")
    outbox.put_end(turn, end(turn))
    assert drain(outbox) == [
        wire.Settled(k=0, outcome="processed"),
        wire.Ack(),
        wire.Text(turn=1, text="A"),
        wire.TurnEnded(turn=1, reason="finished"),
    ]
    assert len(woken) == 3, "the loop needs no waking by itself"


def test_text_of_a_cancelled_turn_is_dropped_wherever_it_is_and_counted() -> None:
    outbox = Outbox(lambda: None)
    turn, other = make_turn(1), make_turn(2)
    outbox.put_text(turn, "on the wire")
    assert outbox.take() == wire.Text(turn=1, text="on the wire")
    outbox.put_text(turn, "waiting")
    outbox.put_text(other, "of another turn")
    turn.cancel("timed_out")
    outbox.put_text(turn, "after")
    outbox.put_end(turn, end(turn))
    assert drain(outbox) == [
        wire.Text(turn=2, text="of another turn"),
        wire.TurnEnded(turn=1, reason="closed", dropped_chars=len("waiting" + "after")),
    ]


def test_a_turn_cancelled_when_all_was_said_ends_as_closed() -> None:
    """The fence and the end crossed in the outbox: nothing was dropped, and the reason is the server's."""
    outbox = Outbox(lambda: None)
    turn = make_turn()
    outbox.put_end(turn, end(turn, "failed"))
    turn.cancel("timed_out")
    assert drain(outbox) == [wire.TurnEnded(turn=1, reason="closed")]


def test_a_full_outbox_makes_the_worker_wait_and_the_loop_never() -> None:
    progress = threading.Semaphore(0)
    outbox = Outbox(progress.release, capacity=3)
    turn = make_turn()

    def flood() -> None:
        for n in range(100):
            outbox.put_text(turn, f"{n} ")
        outbox.put_end(turn, end(turn))

    worker = threading.Thread(target=flood)
    worker.start()
    for _ in range(3):
        assert progress.acquire(timeout=PATIENCE_S)
    assert worker.is_alive()
    for _ in range(50):
        outbox.put_now(wire.Ack())  # the loop goes on acknowledging
    said: list[wire.AgentMessage] = []
    while not any(isinstance(message, wire.TurnEnded) for message in said):
        message = outbox.take()
        if message is None:
            assert progress.acquire(timeout=PATIENCE_S)
        else:
            said.append(message)
    worker.join(PATIENCE_S)
    assert not worker.is_alive()
    assert "".join(message.text for message in said if isinstance(message, wire.Text)) == "".join(
        f"{n} " for n in range(100)
    )
    assert sum(isinstance(message, wire.Ack) for message in said) == 50


@pytest.mark.parametrize("fence", [False, True])
def test_closing_lets_a_waiting_worker_go(fence: bool) -> None:
    progress = threading.Semaphore(0)
    outbox = Outbox(progress.release, capacity=1)
    turn = make_turn()

    def say_three() -> None:
        for _ in range(3):
            outbox.put_text(turn, "x")

    worker = threading.Thread(target=say_three)
    worker.start()
    assert progress.acquire(timeout=PATIENCE_S)
    if fence:
        turn.cancel("disconnected")
    outbox.close()
    worker.join(PATIENCE_S)
    assert not worker.is_alive()
    outbox.put(wire.Ack())
    outbox.put_now(wire.Ack())
    assert outbox.take() is None
