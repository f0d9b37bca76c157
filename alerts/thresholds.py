"""From when on something counts, and why there."""

from __future__ import annotations

MINUTE_NS = 60 * 10**9

TOGETHER_NS = MINUTE_NS
"""What begins within a minute of the first is one fault with it: a switch takes its jobs down within a timeout or two
of the collectives, and whoever has been woken a minute ago is awake and reads of the others on the same page."""

FLAPS_AFTER = 3
FLAPS_WITHIN_NS = 60 * MINUTE_NS
"""A job that opens more alerts of a level than this within an hour flaps: the fourth page says nothing that the third
did not. The alert of it stays open until it has been quiet."""

QUIET_NS = 10 * MINUTE_NS
"""So long nothing has opened: several times the gap between the openings of what flaps thrice an hour and more."""

OLD_NEWS_NS = 24 * 60 * MINUTE_NS
"""What came and went while a sink was away is told when it is back, but not the day after."""

SHOWN_JOBS = 20
"""Of an alert over many jobs so many are named, and the others counted: a page on a telephone holds no more."""

SHOWN_CULPRITS = 16
"""Two hosts of eight; whoever needs all of them opens the page."""

DELIVERIES_PER_TURN = 100
"""Between two looks at Kafka: at 50 ms each five seconds, well within the time after which a member is put out."""

TRIED_AGAIN_S = 0.2
"""While somebody is to be told something he is tried so often, between the pauses of those who are away."""

ORDERS_LOOKED_AT_S = 2.0
"""So soon a silence holds, or a page stops that somebody has acknowledged: nobody who types sees the difference."""

HEARTBEAT_S = 60.0
"""What waits for heartbeats can be told to wait for minutes, and for nothing shorter."""
