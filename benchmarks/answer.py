"""Asks one adapter one thing: `answer.py MODULE VERB [NUMBER…]` writes one line of JSON."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module


def main() -> None:
    module, verb, *numbers = sys.argv[1:]
    told: object = getattr(import_module(module).ADAPTER, verb)(*map(int, numbers))
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the background threads of a client are not what is measured


if __name__ == "__main__":
    main()
