"""What the host says besides calls: processes, kernel log, hardware, stacks.

In: /proc, /sys, NVML, netlink, the kernel's log. Out: HostSample, HostVitals, HostEvidence.
Must not import the agent, the calls or the importers.
"""
