"""What a person reads on a terminal or as a picture, and the same as JSON for a script.

In: findings, incidents, tables. Out: text, pictures, JSON values.
Must not import the bus, the runtime or any of the other packages.
"""
