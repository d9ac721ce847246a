"""The terminal twin of the dashboard: `outlast top`.

`seen.py` reads and tells it as lines of text, without a terminal; `board.py` is the screen with its
keys, `task.py` the one of a task.
"""
