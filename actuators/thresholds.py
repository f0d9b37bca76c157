"""What decides about looking closer and measuring by oneself, each with its unit and reason."""

from __future__ import annotations

SECOND_NS = 1_000_000_000

PROFILE_FOR_NS = 10 * SECOND_NS
"""Chosen: vitals are read each second, and rates of links and processors are judged by several readings."""

MOST_VALIDATIONS_PER_HOUR = 6
"""Of one job, by itself: with 20 s each a thirtieth of its time at the very most. By hand there is no limit."""

VALIDATION_PRICE_S = 10.0
"""Ranks of real gloo jobs were held for 7.7 to 9.2 s (docs/validating.md); on GPUs less is expected, and was not
measured."""

MOST_LOOKED_INTO = 1_000
"""Chosen: suspicions of one job that are remembered as looked into; more than one job has in a year."""

MOST_JOBS = 10_000
"""Chosen: jobs of one worker that are remembered; the one that was heard of least recently is forgotten first, and
only means that a suspicion of it may be looked into again."""

AGAIN_AFTER_NS = 15 * SECOND_NS
"""Agents that could not be reached while something has to be undone are tried again."""

COMMAND_WITHIN_S = 600.0
"""A command of the site that has not ended is ended: it should hand a job to a scheduler, and not wait for it."""

RECORDS_KEPT_S = 7 * 86_400.0
"""Chosen: what was written down of a restart that is over, for whoever wants to know what was run."""

MOST_QUESTIONS = 256
"""Chosen: questions of survivors that are remembered, so that each is answered once."""

INCIDENT_WITHIN_NS = 300 * SECOND_NS
"""An exit is told some seconds after it, a hang within a minute; what was ordered is recorded on the incident of the
loss, and where none has come by then it stands in the store's commands alone."""

EFFECT_AFTER_NS = 15 * SECOND_NS
EFFECT_EVERY_NS = 10 * SECOND_NS
"""Chosen: what a recovery has brought is asked for so soon, and so often."""

EFFECT_ITERATIONS = 8
"""Chosen: the middle one of so many tells the new pace; the first of a plan warms up."""

EFFECT_WITHIN_NS = 600 * SECOND_NS
"""By then it is said with the iterations that there are."""

PRICES_KEPT_S = 30.0
"""Chosen: a job's last checkpoint or restart is priced in seconds to minutes, and a question takes tens of milliseconds
of the store for each version of an incident."""
