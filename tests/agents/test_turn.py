"""A turn's cancel, from whichever thread and at whichever moment; a frame's picture."""

from __future__ import annotations

import io
import threading

import numpy as np
from PIL import Image

from streamsim_agents.agent import Frame, Turn


def make_turn() -> Turn:
    return Turn(1, media_ns=0, seen_media_ns=None)


def test_the_first_reason_of_a_cancel_stays() -> None:
    turn = make_turn()
    assert not turn.cancelled
    turn.cancel("timed_out")
    turn.cancel("cancelled")
    assert turn.cancelled
    assert turn.reason == "timed_out"


def test_a_callback_is_called_once_at_the_cancel() -> None:
    turn, calls = make_turn(), list[str]()
    turn.on_cancel(lambda: calls.append("first"))
    turn.on_cancel(lambda: calls.append("second"))
    assert calls == []
    turn.cancel("cancelled")
    turn.cancel("cancelled")
    assert calls == ["first", "second"]


def test_a_callback_that_comes_late_is_called_at_once() -> None:
    turn, calls = make_turn(), list[str]()
    turn.cancel("cancelled")
    turn.on_cancel(lambda: calls.append("late"))
    assert calls == ["late"]


def test_no_callback_is_lost_between_two_threads() -> None:
    for _ in range(200):
        turn, calls, barrier = make_turn(), list[int](), threading.Barrier(2)

        def cancel(turn: Turn = turn, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            turn.cancel("cancelled")

        other = threading.Thread(target=cancel)
        other.start()
        barrier.wait()
        for number in range(10):
            turn.on_cancel(lambda number=number, calls=calls: calls.append(number))  # type: ignore[misc]
        other.join()
        assert sorted(calls) == list(range(10))


def test_waiting_ends_with_the_cancel() -> None:
    turn = make_turn()
    assert turn.wait(0) is False
    threading.Thread(target=turn.cancel, args=("cancelled",)).start()
    assert turn.wait(3600) is True
    assert turn.wait(3600) is True


def picture_file(encoding: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((6, 8, 3), (200, 30, 60), np.uint8)).save(file, encoding)
    return file.getvalue()


def test_a_jpeg_is_passed_on_as_it_came() -> None:
    data = picture_file("JPEG")
    assert Frame(k=0, media_ns=0, data=data).jpeg is data


def test_a_lossless_picture_can_be_had_as_a_jpeg() -> None:
    frame = Frame(k=0, media_ns=0, data=picture_file("PNG"))
    with Image.open(io.BytesIO(frame.jpeg)) as picture:
        assert picture.format == "JPEG"
        assert picture.size == (8, 6)
        error = np.abs(np.asarray(picture, dtype=int) - (200, 30, 60)).max()
    assert error <= 3
