"""A job that is commanded while whoever takes part in it is killed; `bench/kills.py` counts what came of it."""
