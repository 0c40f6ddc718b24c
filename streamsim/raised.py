"""What an agent raised, in one line: type, message and place, from the text of a traceback.

Only the text is there: the agent may live in another process, under another interpreter, or be none of
Python's. What Python prints is read as it prints it, its groups, notes and chains; of a chain the last
one counts, of other texts the first line. A message may itself hold a traceback: what the exception
begins with stands before it.
"""

from __future__ import annotations

import re

MAX_SHOWN_CHARS = 200
_HEADER = re.compile(r"(?:  \+ )?(?:Exception Group )?Traceback \(most recent call last\):")
_LINK = re.compile(
    r"\n\n(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):\n\n"
    r"(?=(?:  \+ Exception Group )?Traceback \(most recent call last\):\n)"
)
_PLACE = re.compile(r'  File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_FOLDERS = re.compile(r".*[/\\]")
_STACK = re.compile(r"  |\t|…|$")
_GROUP_LINE = "  | "
_MEMBER_LINE = "    | "


def describe_raised(traceback: str) -> str:
    """``TYPE: MESSAGE (FILE:LINE)``, the first line of the message, at most ``MAX_SHOWN_CHARS`` of it.

    The place is the innermost of the stack, by the file's last name. An exception group is followed by
    its first member. "no traceback" for an empty text.
    """
    lines = _LINK.split(traceback.replace("\r\n", "\n"))[-1].split("\n")
    start = next((number for number, line in enumerate(lines) if line.strip()), None)
    if start is None:
        return "no traceback"
    lines = lines[start:]
    if lines[0].startswith("  + "):
        return _describe_group(lines)
    if not _HEADER.fullmatch(lines[0]) and lines[0].startswith("…"):
        lines = _skip_torn(lines)
    return _describe_one(lines)


def _describe_one(lines: list[str]) -> str:
    """One exception: the header, the stack, which is indented, and then what was raised."""
    place, number = "", 0
    if _HEADER.fullmatch(lines[0]):
        number = 1
    while number < len(lines) and _STACK.match(lines[number]):
        found = _PLACE.match(lines[number])
        if found is not None:
            name = _FOLDERS.sub("", found["file"])
            place = f" ({name}:{found['line']})"
        number += 1
    if number == len(lines):  # a stack and nothing behind it
        return _shorten(lines[0].strip()) + place
    said = lines[number].strip()
    if said.endswith(":"):  # the message begins with an empty line
        following = (line.strip() for line in lines[number + 1 :])
        said = " ".join(filter(None, (said, next(filter(None, following), ""))))
    return _shorten(said) + place


def _describe_group(lines: list[str]) -> str:
    """A group, whose lines have a margin, and its first member, whose lines have a wider one."""
    own: list[str] = [lines[0].removeprefix("  + ")]
    member: list[str] = []
    for line in lines[1:]:
        if line.startswith(_GROUP_LINE) and not member:
            own.append(line.removeprefix(_GROUP_LINE))
        elif line.startswith(_MEMBER_LINE):
            member.append(line.removeprefix(_MEMBER_LINE))
        elif member:
            break
    group = _describe_one(own)
    first = describe_raised("\n".join(member))
    return f"{group}, the first: {first}" if member else group


def _skip_torn(lines: list[str]) -> list[str]:
    """A text that lost its beginning: from its first whole stack on, or its last line."""
    stack = next((number for number, line in enumerate(lines) if _PLACE.match(line)), None)
    return [line for line in lines if line.strip()][-1:] if stack is None else lines[stack:]


def _shorten(said: str) -> str:
    """Cut behind a word, but for words that are longer than a third of it all."""
    if len(said) <= MAX_SHOWN_CHARS:
        return said
    cut = said[: MAX_SHOWN_CHARS - 1]
    if not said[len(cut)].isspace():
        words, _, torn = cut.rpartition(" ")
        cut = words if len(torn) <= MAX_SHOWN_CHARS // 3 else cut
    return cut.rstrip() + "…"
