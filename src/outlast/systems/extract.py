"""A summariser that needs no model: it picks the sentences that say most, in their own order.

A word weighs the logarithm of how often the text uses it, a sentence the mean of its words, early
ones somewhat more. The best sentence is taken, then the best that does not repeat it, and so on
(maximal marginal relevance). Time grows with the text times the sentences kept: a megabyte takes
less than a second.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Final

# A sentence ends at . ! ? … (with closing quotes) before a space, or at an ideographic full stop.
_END: Final = re.compile(r"(?<=[.!?…])[\"'”\u2019)\]]*\s+|(?<=[\u3002\uff01\uff1f])\s*|\n\s*\n")
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:[A-Za-z]|Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|vs|etc|e\.g|i\.e|cf|al|Inc|Ltd|Co|Corp"
    r"|No|Nr|Fig|Vol|pp|approx|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|z\.B|bzw|ca)\.$"
)
_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+(?:['\u2019][^\W_]+)?")
_STOP_WORDS: Final = """
a about above after again against all also am an and any are aren't as at be because been
before being below between both but by can can't could did didn't do does doesn't don't down
during each even few for from further get had has have having he he's her here hers herself
him himself his how however i i'm if in into is isn't it it's its itself just let like many
may me might more most much must my myself no nor not now of off on once one only or other
our ours out over own per said same say says she should so some still such than that that's
the their theirs them themselves then there these they this those though through thus to too
under until up upon us very was wasn't we were what when where whether which while who whom
whose why will with within without won't would yet you you're your yours
aber als am an auch auf aus bei bin bis da dann das dass dem den der des die dies diese
dieser doch du durch ein eine einem einen einer eines er es für hat hatte ich ihr im in ist
ja kann man mehr mit nach nicht noch nur ob oder sehr sein sich sie sind so um und uns vom
von vor war was wenn wer wie wir wird wurde zu zum zur über
"""  # English, then German
_STOP: Final = frozenset(_STOP_WORDS.split())
# A line shorter than this is a heading or a scrap; one longer would fill the summary alone.
_FEWEST_WORDS: Final = 4
_MOST_WORDS: Final = 60


def sentences(text: str) -> list[str]:
    """The sentences of a text, white space tidied; abbreviations do not end one."""
    found: list[str] = []
    start = 0
    for end in _END.finditer(text):
        piece = text[start : end.end()]
        if "\n\n" not in end.group().replace(" ", "") and _ABBREVIATION.search(piece.rstrip()):
            continue
        found.append(" ".join(piece.split()))
        start = end.end()
    found.append(" ".join(text[start:].split()))
    return [sentence for sentence in found if sentence]


def summarize(text: str, most: int = 5) -> list[str]:
    """At most `most` sentences that carry the text, in the order they have there."""
    every = sentences(text)
    if len(every) <= most:
        return every
    bags = [_words(sentence) for sentence in every]
    counts = Counter(word for bag in bags for word in bag)
    left = {i for i, bag in enumerate(bags) if _FEWEST_WORDS <= len(bag) <= _MOST_WORDS}
    left = left or set(range(len(every)))
    scores = {i: _weight(bags[i], counts) * _lead(i) for i in left}
    fresh = dict.fromkeys(left, 1.0)  # how much of a sentence has not been said yet
    chosen: list[int] = []
    while left and len(chosen) < most:
        best = max(left, key=lambda i: (scores[i] * fresh[i], -i))
        left.remove(best)
        chosen.append(best)
        said = set(bags[best])
        for i in left:
            fresh[i] = min(fresh[i], 1 - _overlap(said, set(bags[i])))
    return [every[i] for i in sorted(chosen)]


def _words(sentence: str) -> list[str]:
    return [w for w in _WORD.findall(sentence.lower().replace("\u2019", "'")) if w not in _STOP]


def _weight(bag: list[str], counts: Counter[str]) -> float:
    # 0.1 for a word that is used once: it says little about the text, but more than nothing.
    return sum(0.1 + math.log(counts[word]) for word in bag) / (len(bag) or 1)


def _lead(position: int) -> float:
    """Texts say early what they are about: the first sentence gets half more, the tenth a tenth."""
    return 1 + 0.5 * math.pow(position + 1, -0.7)


def _overlap(one: set[str], other: set[str]) -> float:
    shared = len(one & other)
    return shared / ((len(one) + len(other) - shared) or 1)
