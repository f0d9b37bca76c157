"""`pacehound run`: starts a command as if it had been started alone, and has it watched meanwhile.

Exit status, signals and standard streams are those of the command. Whatever of ours fails costs a line on stderr and
never the command.

In: a command and its environment. Out: its exit status, and the helpers that watch it.
Must not import the command line or any of the other packages.
"""
