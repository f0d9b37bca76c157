"""Nothing stays open for ever."""

from head_parts import an_incident

from pacehound.runtime.head.interrupted import WATCHING_INTERRUPTED, interrupted


def test_open_and_relieved_incidents_close_at_the_last_time_known_of_them():
    for state in ("open", "relieved"):
        (closed,) = interrupted([an_incident(state=state)], now_ns=10**9)
        assert (closed.state, closed.closed_why) == ("closed", WATCHING_INTERRUPTED)
        assert closed.closed_ns == 70
        assert (closed.version, closed.time_ns) == (4, 10**9)


def test_a_closed_incident_is_left_alone():
    assert interrupted([an_incident(state="closed", closed_ns=60)], now_ns=1) == []
