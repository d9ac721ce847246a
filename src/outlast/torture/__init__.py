"""Torture: real processes on a real engine, faults while they work, and a judge of what is left.

The load (`load`) is a pure function of a seed. Producers (`producer`) hand it over, workers run it
(`app`), and a `nemesis` kills, pauses and cuts them off meanwhile, through a `proxy` where the
engine is a server. What handlers did is in a ledger and what the engine answered in a history
(`record`), both outside the engine; from these, the final dump and the log (`evidence`) the
invariants are judged (`check`). `run` is the conductor, `report` what people read.
"""
