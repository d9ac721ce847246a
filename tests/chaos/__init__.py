"""Real processes, killed, stopped and blocked; a ledger outside the engine is the truth."""
