"""Who holds the job up: wait-for graph, root cause, exits, silent hosts.

In: Progress, SignatureMismatch, what hosts report. Out: findings of kind hang, exit and blind.
May import `rounds`; must not import the other rooms.
"""
