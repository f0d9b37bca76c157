"""The way to the ranks of a job: signed orders to its agents, their answers, and the hold of all ranks at one round.

In: what agents have answered, and the time. Out: orders. Nothing of Pacehound but `pacehound.model` is imported here:
who signs and what carries the orders is passed in.
"""
