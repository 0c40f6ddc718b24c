"""What the agent was told about the world before it looks: names, colours, wordings.

Whoever makes the episodes has a vocabulary of its own; a test keeps the two equal. Nothing in here
says how often anything happens or which answer is right.
"""

from __future__ import annotations

from typing import Final

HUES: Final[dict[str, float]] = {
    "red": 359.3,
    "orange": 30.0,
    "yellow": 51.4,
    "green": 130.0,
    "blue": 222.5,
    "purple": 275.8,
}
"""Colours of objects, as hue in degrees."""

SHAPES: Final = ("ball", "cube", "cone", "star", "ring")

FLIER_HUES: Final[dict[str, float]] = {"drone": 184.0, "hot-air balloon": 322.1}
DARK_FLIER: Final = "bird"
"""The one flier that is known by being almost black."""

WALLS: Final[dict[str, tuple[int, int, int]]] = {
    "kitchen": (234, 222, 190),
    "lounge": (196, 212, 188),
    "bedroom": (210, 198, 218),
    "bathroom": (190, 212, 224),
}
SKY: Final = (150, 196, 240)
GLASS_PX: Final = 7_000
"""About how many pixels of sky a window shows without its blind."""

PLACE_Y: Final[dict[str, int]] = {"shelf": 136, "table": 236, "floor": 346}
"""Where the lower edge of an object is that stands somewhere, in pixels from the top."""

OBJECT_PX: Final = 42
PICTURE_SIZE: Final = (512, 384)

ABSTENTION: Final = "cannot be told"
CONTRACT: Final = "Go by what the camera has shown; things can change unseen."

ROOM_PHRASES: Final = {room: f"in the {room}" for room in WALLS}
PLACE_PHRASES: Final = {"shelf": "high on a shelf", "table": "on a table", "floor": "on bare floor"}
BLIND_PHRASES: Final = {
    "raised": "all the way up",
    "halfway down": "halfway down",
    "lowered": "all the way down",
}
COUNT_PHRASES: Final = ("not once", "just once", "just twice")

WORDINGS: Final[dict[str, tuple[str, ...]]] = {
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
"""How questions of each form are worded; CONTRACT follows each."""

VANISHED, RETURNED = "vanished", "returned"
CHANGES: Final = {"gone": VANISHED, "back": RETURNED}
VERBS: Final = {"vanish": VANISHED, "come back": RETURNED}
ORDINALS: Final = {"first": 0, "second": 1}
