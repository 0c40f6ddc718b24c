"""Statistical cues: does a dataset give its answers away to someone who sees no video?

Three questions per subset and number of options, each an exact test against chance, a warning where
chance would do as much less often than once in a hundred:

- *Positions*: is the right option at one presented position too often or too rarely? Two-sided
  binomial per position with probability 1/n, at 0.01/n each (Bonferroni).
- *Length*: among the questions with one longest option, is it the right one too often? One-sided
  binomial with probability 1/n; likewise for one shortest. In characters.
- *Overlap*: among the questions in which one option shares more words with the question than any
  other, is it the right one too often? One-sided, as before. Words of three letters or more, in lower
  case.

Length and overlap are tested apart for uncertain questions, whose right option is mostly a worded
abstention. After STORM-Bench, appendix on option cues, which names the comparisons and no test.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from streamsim.episodes.episode import EpisodeQuery, KeyEntry
from streamsim.episodes.finding import Finding

LEVEL = 0.01
_WORD = re.compile(r"[^\W\d_]{3,}")

Item = tuple[EpisodeQuery, KeyEntry]
_Measure = Callable[[EpisodeQuery], list[int]]


def cue_findings(items: Sequence[Item], file: str) -> Iterator[Finding]:
    """Warnings about choices whose answers are legal; ``file`` is named in them."""
    groups: defaultdict[tuple[str, int], list[Item]] = defaultdict(list)
    for query, entry in items:
        if len(query.options) > 1 and entry.answer_index is not None:
            groups[entry.subset, len(query.options)].append((query, entry))
    for (subset, count), group in groups.items():
        for field, text in (*_position_cues(group, count), *_option_cues(group, count)):
            yield Finding(level="warning", file=file, item=f"subset {subset}", field=field, text=text)


def binomial_tail(n: int, k: int, p: float) -> float:
    """Probability of ``k`` or more successes in ``n`` independent trials of probability 0 < ``p`` < 1."""
    if k <= 0:
        return 1.0
    base = math.lgamma(n + 1)
    terms = (
        math.exp(
            base - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(p) + (n - i) * math.log1p(-p)
        )
        for i in range(k, n + 1)
    )
    return min(1.0, math.fsum(terms))


def _position_cues(group: Sequence[Item], count: int) -> Iterator[tuple[str, str]]:
    n = len(group)
    hits = Counter(entry.answer_index for _, entry in group)
    for position in range(count):
        k = hits[position]
        chance = 2 * min(binomial_tail(n, k, 1 / count), binomial_tail(n, n - k, 1 - 1 / count))
        if chance < LEVEL / count:
            letter = chr(ord("A") + position)
            text = f"right at {letter} in {k} of {n} questions, {n / count:.1f} expected{_p(chance)}"
            yield "answer_index", text


def _option_cues(group: Sequence[Item], count: int) -> Iterator[tuple[str, str]]:
    measures: dict[str, _Measure] = {
        "the longest": _lengths,
        "the shortest": lambda query: [-length for length in _lengths(query)],
        "nearest to the question's words": _overlaps,
    }
    uncertain = [item for item in group if item[1].status == "uncertain"]
    others = [item for item in group if item[1].status != "uncertain"]
    for kind, part in (("", others), ("uncertain ", uncertain)):
        for what, measure in measures.items():
            tops = [(_single_top(measure(query)), entry.answer_index) for query, entry in part]
            decided = [(top, answer) for top, answer in tops if top is not None]
            n, k = len(decided), sum(top == answer for top, answer in decided)
            chance = binomial_tail(n, k, 1 / count)
            if chance < LEVEL:
                yield (
                    "options",
                    f"the one option that is {what} is right in {k} of {n} {kind}questions, "
                    f"{n / count:.1f} expected{_p(chance)}",
                )


def _p(chance: float) -> str:
    return f" (p = {min(1.0, chance):.1g})"


def _single_top(values: Sequence[int]) -> int | None:
    """Where the largest value is, None if it is there twice."""
    top = max(values)
    return values.index(top) if values.count(top) == 1 else None


def _lengths(query: EpisodeQuery) -> list[int]:
    return [len(option) for option in query.options]


def _overlaps(query: EpisodeQuery) -> list[int]:
    words = set(_WORD.findall(query.stem.lower()))
    return [len(words & set(_WORD.findall(option.lower()))) for option in query.options]
