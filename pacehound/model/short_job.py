"""When a job was too short, or too unlike itself, for anything to be said of its pace."""

FEWEST_ITERATIONS = 40
"""With fewer no slowdown is found (measured: a test of the level tells when this is no longer so)."""


def not_judged(iterations: int) -> str:
    """Why no slowdown can have been found in so many iterations; empty where one can.

    >>> not_judged(30)
    'a slowdown could not be found: the job has had 30 iterations, and 40 are needed'
    """
    if not iterations:
        why = "no iteration was recognised: no optimizer step was seen, and no calls recurred for 30 s"
    elif iterations < FEWEST_ITERATIONS:
        had = f"{iterations} iteration{'' if iterations == 1 else 's'}"
        why = f"the job has had {had}, and {FEWEST_ITERATIONS} are needed"
    else:
        return ""
    return f"a slowdown could not be found: {why}"
