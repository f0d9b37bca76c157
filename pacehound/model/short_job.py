"""When a job was too short for anything to be said of its pace."""

JUDGED_FROM_ITERATIONS = 44
"""A change of pace is told from so many iterations on (measured: with fewer than 43 step times between them none is, of
whatever size; the first 24 are the level, three may be a pause, and a change is believed after 16)."""


def too_short(n_iterations: int) -> str:
    """Why its pace could not be judged; empty where it could.

    >>> too_short(30)
    'too short to judge its pace: 30 iterations were seen, and a change is told from 44 on'
    >>> too_short(0), too_short(44)
    ('its pace was not judged: no optimizer step was seen, nor calls that recurred for long enough', '')
    """
    if n_iterations >= JUDGED_FROM_ITERATIONS:
        return ""
    if not n_iterations:
        return "its pace was not judged: no optimizer step was seen, nor calls that recurred for long enough"
    plural = "iteration was" if n_iterations == 1 else "iterations were"
    return (
        f"too short to judge its pace: {n_iterations} {plural} seen, and a change is told from "
        f"{JUDGED_FROM_ITERATIONS} on"
    )
