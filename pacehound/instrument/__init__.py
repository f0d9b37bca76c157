"""What runs inside somebody's training process: hooks that write what its ranks call into shared memory.

In: calls of torch.distributed. Out: records in rings, for the agent.
Must not import anything but the standard library, torch, `pacehound.model` and
`pacehound.trainer`; no error in here reaches the script.
"""
