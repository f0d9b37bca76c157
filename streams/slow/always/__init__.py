"""Who is slow from the first step on: there is no quiet time before, so that peers are what tells.

`peers` says who plays the same part, `standing_apart` whose own time stays above theirs, `ranks` and `links` who is
named for it, `grown` who is where there are no peers and it began a little later, and `always_slow` what becomes of it.
"""
