#!/bin/bash
# TaskProlog of slurm.conf: what it prints as `export NAME=VALUE` is in the environment of each task.
# The file is root's and readable by the group whose members may send: 0640, root:pacehound.

token_file=${PACEHOUND_TOKEN_FILE:-/etc/pacehound/token}
if [ -r "$token_file" ]; then
    echo "export PACEHOUND_TOKEN=$(cat "$token_file")"
fi
exit 0 # a prolog that fails takes the node out of service: nothing here is worth that
