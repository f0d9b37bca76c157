"""Step times: when a series changed its level (BOCD and its verification), drifts, bursts, patterns.

In: step times of one series. Out: changepoints and findings without a name.
May import `watching`; must not import any other room of `streams`.
"""
