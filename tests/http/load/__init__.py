"""Load on a server: the one that is compared with, and a client that costs little."""
