"""Jobs with known answers: the populations that detection and verdicts are scored on.

In: seeds. Out: jobs and series, with what must be found in them.
No other module of the simulator may import them.
"""
