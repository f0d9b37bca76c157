"""What a head node is made of: the OTLP receiver, the socket for the commands, leases, ticks.

Nothing in here imports the pipeline, the store or any other sibling; `pacehound.runtime.embedded` puts them together.
"""
