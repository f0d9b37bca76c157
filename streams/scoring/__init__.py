"""Verdicts and findings against known answers.

In: findings, and what really happened. Out: scores.
May import `streams.pipeline` alone of `streams`.
"""
