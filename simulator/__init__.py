"""A synthetic cluster: hybrid-parallel training with faults and their ground truth.

`simulator.job.simulate(JobSpec(...))` runs a job; its `events()` are what the agents of its hosts would publish, and
its `truth` is what should be found in them. `simulator.obedient_agents` are those of a job that goes on while somebody
commands it.
"""
