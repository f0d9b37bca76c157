"""Stage two: everything about one job, from all its communicators and hosts in one order of time.

In: what stage one sends on. Out: findings and incidents.
May import `rounds`, `level`, `slow`, `hang` and `whatif`; must not import Kafka or the scoring.
"""
