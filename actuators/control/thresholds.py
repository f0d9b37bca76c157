"""How long whom is waited for on the way to the ranks, each with its unit and reason."""

from __future__ import annotations

from pacehound.model.orders import LONGEST_LEASE_MS

SECOND_NS = 1_000_000_000

LEASE_MS = 1_500
"""A dead controller holds nobody for more than two seconds: this, and what an agent needs to look."""
assert LEASE_MS <= LONGEST_LEASE_MS

KEEP_EVERY_NS = 300_000_000
"""Five words for each lease: four of them may be lost or late."""

LOCATE_EVERY_NS = SECOND_NS // 2
"""Chosen: agents ask ten times a second by then, and a rate over half a second is good to a few rounds."""

LOCATE_WITHIN_NS = 20 * SECOND_NS
"""Chosen: an agent asks once a second, and its answer waits for what it sends before."""

AHEAD_S = 2.0
"""Rounds that lie so far ahead of the furthest rank: an order reaches an idle agent within a second, and is answered in
another. Doubled where that was too little."""

MOST_TRIES = 3
"""A job whose rounds come in bursts is passed by now and then; three times in a row it is not to be held."""

ARM_WITHIN_NS = 15 * SECOND_NS
"""A rank answers at its next call: a step of a large model takes so long. Whoever computes for longer is not waited
for."""

GATHER_WITHIN_NS = 20 * SECOND_NS
"""As in collector/native/shim_trap.c: from then on ranks go on by themselves."""

SILENT_AFTER_NS = 8 * SECOND_NS
"""An agent that holds says so twice a second, and its word waits until what it sent before is stored: on a host whose
processors were all taken that took more than three seconds. Ranks of an agent that has died go on by themselves after
two; so long the others wait for them."""

RENEW_OFFER_EVERY_NS = 2 * SECOND_NS
"""A quarter of the time after which an agent forgets an offer (collector/agent/trainers.py): three may be lost."""

APPLY_AHEAD_S = 8.0
"""A step that lies so far ahead of the furthest rank: two ways to the agents and back of at most a second each, and
`CONFIRM_AHEAD_S`. Doubled where that was too little."""

APPLY_AHEAD_STEPS = 3
"""And so many at least: a rank hears at its next step, and must be told one step before it applies."""

CONFIRM_WITHIN_NS = 2 * SECOND_NS
"""An agent asks ten times a second by then; one that has not confirmed within this time has died, or is cut off."""

CONFIRM_AHEAD_S = 4.0
"""Nearer than that to its step an order is not confirmed any more: it could not be taken back."""
assert CONFIRM_AHEAD_S * SECOND_NS >= CONFIRM_WITHIN_NS + 2 * SECOND_NS, "with a way to the agents"

PACE_ANSWER_WITHIN_NS = 60 * SECOND_NS
"""Nobody waits for the answer to how fast ranks go: on a host whose processors were all taken a controller and an agent
did not hear each other for seventeen seconds."""

WITHDRAW_WITHIN_NS = 5 * SECOND_NS
"""So long it is waited for what the ranks say of an order that was taken back."""

APPLY_SLACK_NS = 60 * SECOND_NS
"""Over twice the time that the ranks need to the step at their pace: an evaluation or a checkpoint lies between."""

ANSWER_EVERY_NS = 250_000_000
"""Survivors of a loss wait two seconds by default: an answer on the way to an agent is said again three times a second
at the least, for an agent that has just begun (chosen)."""

CONFIRM_ANSWER_AHEAD_NS = 250_000_000
"""An agent asks ten times a second by then: what is confirmed nearer to the deadline than this may come after it."""
