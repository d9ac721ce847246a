"""The tests. One package, so that the parts can share what is beside them (`mutants`)."""
