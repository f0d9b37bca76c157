"""Operations of pipeline-parallel jobs, for the what-if analysis: schedules, runs, traces with known truth.

In: a job's shape and what slows it. Out: traces of operations, with their truth.
Must not import the suites.
"""
