"""Numbers of things for people: ``1 episode``, ``2 queries``."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """``COUNT NOUN``, the noun (an English singular with a regular plural) in the plural but for 1."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"
