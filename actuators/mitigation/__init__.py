"""What can be done about an incident, at what price, and when it is worth it: plans as values; nothing is done here.

In: incidents, the prices of a job, how long earlier incidents lasted, speeds and places of ranks. Out: options with
their moments, and plans: micro-batches per replica, moved ranks, sequences per rank, commands of a restart.
Must not import anything of Pacehound but `pacehound.errors` and `pacehound.model`; cvxpy only in `quadratic`.
"""
