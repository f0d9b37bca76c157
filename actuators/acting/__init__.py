"""One action about one incident, from the moment at which it is due to its end: asked for, done, measured, undone.

In: versions of an incident, what agents and people have answered, what a site's commands said, the time. Out: orders to
agents, decisions, and commands of the site to be run. Pure: an attendant signs, sends, hears and runs.
Must not import what signs or sends; plans come from `actuators.mitigation`, procedures from `actuators.control`.
"""
