"""Asks one adapter one thing: `answer.py MODULE VERB [NUMBER…]` writes one line of JSON."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

from adapter import Adapter


def main() -> None:
    module, verb, *numbers = sys.argv[1:]
    adapter: Adapter = import_module(module).ADAPTER
    told: dict[str, object] = {}
    if verb == "work":
        adapter.work()
    elif verb == "check":
        told = adapter.check()
    elif verb == "pace":
        adapter.pace(int(numbers[0]))
    else:
        n = int(numbers[0])
        seconds = adapter.bulk(n) if verb == "bulk" else adapter.enqueue(n, int(numbers[1]))
        told = {"rate": n / seconds}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the background threads of a client are not what is measured


if __name__ == "__main__":
    main()
