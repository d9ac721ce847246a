"""An embedding that needs no model: texts that use the same words lie close to each other.

Each word is hashed to one of the dimensions and a sign; a text is the sum of its words, each
weighed by the logarithm of how often it comes, brought to length 1. It knows no synonyms, and is
the same on every machine and in every run.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from typing import Final

DIMENSIONS: Final = 256
MAX_DIMENSIONS: Final = 4_096
_WORD: Final = re.compile(r"\w+")


def embed(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """A vector of length 1 for a text; one without words points along the first axis."""
    vector = [0.0] * dimensions
    for word, n in Counter(_WORD.findall(text.lower())).items():
        digest = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
        vector[digest // 2 % dimensions] += (1 + math.log(n)) * (1 if digest % 2 else -1)
    length = math.sqrt(math.fsum(part * part for part in vector))
    if not length:
        return [1.0, *vector[1:]]
    return [part / length for part in vector]
