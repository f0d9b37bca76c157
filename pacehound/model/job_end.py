"""How a job ended on a host, as its launcher or agent says it."""

JOB_ENDED = "job ended"
JOB_KILLED = "job killed"

JOB_FAILED = "job failed"
"""Its command left with an exit code: somebody has failed, or the command says so for a reason of its own."""

JOB_INTERRUPTED = "job interrupted"
"""Somebody asked for it (Ctrl-C, a scheduler's SIGTERM): its ranks leave for that then, whatever their exit code."""
