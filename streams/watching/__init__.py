"""What every watch of a job is: what it hears, when it is asked, what it may know of the job.

In: what stage one and the hosts say, in one order of time. Out: findings.
May import `rounds`; must not import the other rooms: each of them has watches, and `job` has the list of them all.
"""
