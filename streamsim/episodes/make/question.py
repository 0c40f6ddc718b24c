"""The forms of questions: how they are worded, what may be answered, what a built item holds.

Every form is asked both when the record answers it and when it does not, in the same words: only
looking tells the two apart. No wording holds a digit. The wordings are public: agents may know them.
"""

from __future__ import annotations

from random import Random

import msgspec

from streamsim.episodes.episode import Status

ABSTENTION = "cannot be told"
"""The option that is on every item, and right where the record does not answer."""

CONTRACT = "Go by what the camera has shown; things can change unseen."
"""The last sentence of every question: what is unseen is not known to have stayed as it was."""

WORDINGS: dict[str, tuple[str, ...]] = {
    "room_now": (
        "In which room is the {thing} at this moment?",
        "In what room does the {thing} stand right now?",
        "Where in the house is the {thing} now?",
    ),
    "place_now": (
        "On what does the {thing} stand at this moment?",
        "What is the {thing} standing on right now?",
        "Where in the room is the {thing} now?",
    ),
    "blind_now": (
        "How does the blind in the {room} hang at this moment?",
        "What is the position of the blind in the {room} right now?",
        "How far down is the blind in the {room} now?",
    ),
    "room_when": (
        "In which room was the {thing} when the camera last found the {other} {change}?",
        "When the {other} was last found to be {change}, in what room did the {thing} stand?",
        "Where in the house was the {thing} when the {other} was last seen to be {change}?",
    ),
    "place_when": (
        "On what did the {thing} stand when the camera last found the {other} {change}?",
        "When the {other} was last found to be {change}, what was the {thing} standing on?",
        "Where in the room was the {thing} when the {other} was last seen to be {change}?",
    ),
    "blind_when": (
        "How did the blind in the {room} hang when the camera last found the {other} {change}?",
        "When the {other} was last found to be {change}, how far down was the blind in the {room}?",
        "What was the position of the blind in the {room} when the {other} was last seen to be {change}?",
    ),
    "latest": (
        "Of the {first}, the {second} and the {third}, which was the last to {verb}?",
        "Which one was the latest to {verb}: the {first}, the {second} or the {third}?",
        "The {first}, the {second}, the {third}: which of these was the most recent to {verb}?",
    ),
    "moves": (
        "How often has the {thing} changed its spot since the camera last found the {other} {change}?",
        "Since the {other} was last found to be {change}, how many times has the {thing} been moved?",
        "How many times did the {thing} change its spot after the {other} was last seen to be {change}?",
    ),
    "turned_up": (
        "Which object turned up in the {room} while the camera last looked away?",
        "What has been added to the {room} since the camera last looked away?",
        "Which object is new in the {room} after the camera's last look away?",
    ),
    "went_missing": (
        "Which object left the {room} while the camera last looked away?",
        "What has been taken from the {room} since the camera last looked away?",
        "Which object is missing from the {room} after the camera's last look away?",
    ),
    "brought_by": (
        "What brought the {thing} to the spot where it stands now?",
        "By what was the {thing} carried to its present spot?",
        "What set the {thing} down where it stands now?",
    ),
    "shape_of_new": (
        "What shape is the {colour} object that turned up in the {room} while the camera last looked away?",
        "Since the camera last looked away, a {colour} object was added to the {room}: what is its shape?",
        "What shape is the {colour} object that is new in the {room} after the camera's last look away?",
    ),
    "very_one": (
        "A {thing} was in view when the camera last found the {other} {change}: where is that very one now?",
        "Where is the very {thing} that was in view when the {other} was last found to be {change}?",
        "Where is the same {thing} now that was in view when the {other} was last seen to be {change}?",
    ),
    "order": (
        "Of the {first}, the {second} and the {third}, which was the {ordinal} to {verb}?",
        "Which one was the {ordinal} to {verb}: the {first}, the {second} or the {third}?",
        "The {first}, the {second}, the {third}: which of these was the {ordinal} to {verb}?",
    ),
}
"""The wordings of each form; CONTRACT follows each."""

TYPES: dict[str, str] = {
    "room_now": "current_state",
    "place_now": "current_state",
    "blind_now": "current_state",
    "room_when": "factual_retrieval",
    "place_when": "factual_retrieval",
    "blind_when": "factual_retrieval",
    "latest": "history_aggregation",
    "moves": "history_aggregation",
    "turned_up": "state_change",
    "went_missing": "state_change",
    "brought_by": "state_change",
    "shape_of_new": "object_tracking",
    "very_one": "object_tracking",
    "order": "temporal_reasoning",
}
"""The benchmark's question type of each form."""

CHANGE_WORDS = {"disappearance": "gone", "return": "back"}
VERBS = {"disappearance": "vanish", "return": "come back"}
ORDINALS = ("first", "second")

BLIND_OPTIONS = {"raised": "all the way up", "halfway down": "halfway down", "lowered": "all the way down"}
PLACE_OPTIONS = {"shelf": "high on a shelf", "table": "on a table", "floor": "on bare floor"}
MOVE_OPTIONS = ("not once", "just once", "just twice")
LOOKALIKES = {"ball": "ring", "ring": "ball", "cone": "star", "star": "cone"}
"""Shapes whose tops look the same."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A question that could be asked at second ``n``.

    ``answer`` is its option text, None where the record does not answer it; ``others`` are the
    substantive options beside it (two, or three without an answer). ``span`` is the evidence, as
    seconds. ``subtype`` is the benchmark's builder that it corresponds to.
    """

    form: str
    subtype: str
    n: int
    fields: dict[str, str]
    answer: str | None
    others: tuple[str, ...]
    causes: tuple[str, ...] = ()
    span: tuple[int, int]

    @property
    def status(self) -> Status:
        """Known where the record holds the answer."""
        return "uncertain" if self.answer is None else "known"

    @property
    def question_type(self) -> str:
        """The benchmark's question type."""
        return TYPES[self.form]


def word(item: Item, wording: int) -> str:
    """The question's text in one of its wordings."""
    return f"{WORDINGS[item.form][wording].format(**item.fields)} {CONTRACT}"


def pick_others(
    random: Random, answer: str | None, pool: list[str], *, always: str | None = None
) -> tuple[str, ...]:
    """Wrong options from a pool: two beside an answer, three without; ``always`` is one of them if it may."""
    rest = [option for option in pool if option not in (answer, always)]
    random.shuffle(rest)
    if always is not None and always != answer:
        rest.insert(0, always)
    return tuple(rest[: 3 if answer is None else 2])


def pick_shapes(random: Random, shape: str, *, known: bool) -> tuple[str, ...]:
    """Shapes to choose from, ``shape`` first: always two whose tops look the same, and a third.

    Where only an edge shows, ``shape`` is one of the two. Where it is known it is any of the three
    equally often, and a cube is the third as often as for an edge: the options say nothing.
    """
    pairs = [("ball", "ring"), ("cone", "star")]
    if shape not in LOOKALIKES:
        return (shape, *random.choice(pairs))
    own, other = pairs if shape in pairs[0] else pairs[::-1]
    throw = random.random()
    if known and throw < _ODD_ONE_OUT:
        return (shape, *other)
    third = "cube" if random.random() < _CUBE_AMONG_THREE else random.choice(other)
    return (shape, *(one for one in own if one != shape), third)


_ODD_ONE_OUT = 1 / 6
_CUBE_AMONG_THREE = 0.6
"""One known shape in five is a cube. With it as the answer 1/5 of all threes, and 2/5 with it beside one of
the two: 3/5 with a cube, as for edges. Of the other threes a third have the odd one out as answer."""
