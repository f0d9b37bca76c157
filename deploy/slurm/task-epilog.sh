#!/bin/bash
# TaskEpilog of slurm.conf, as the job's user: sends what the head could not take while it was away. The next run of that
# user on this node would, too; this is for nodes that a user may never see again.

token_file=${PACEHOUND_TOKEN_FILE:-/etc/pacehound/token}
if [ -r "$token_file" ] && command -v pacehound > /dev/null; then
    PACEHOUND_TOKEN=$(cat "$token_file") timeout 60 \
        pacehound flush --endpoint "${PACEHOUND_ENDPOINT:-https://pacehound:4318}" || true
fi
exit 0
