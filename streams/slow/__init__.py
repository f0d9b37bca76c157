"""Whose delay it is: critical path, own times, transfers, links, and who is named for a slow iteration.

In: Rounds, IterationSample, what hosts report. Out: findings of kind slow.
May import `rounds` and `level`; must not import the other rooms.
"""
