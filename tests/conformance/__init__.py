"""The conformance suite: what `outlast/engine.py` says in prose, executed on every engine."""
