"""After a failure, the plan that gives most work until the next one: every plan priced in throughput and downtime.

In: who held which layers, who is lost or has come, what a layer costs, what failed before. Out: priced plans, the one
that is chosen, and why.
Must not import anything of Pacehound but `pacehound.errors`; scipy only in `restorer`. No clock: times are arguments.
"""
