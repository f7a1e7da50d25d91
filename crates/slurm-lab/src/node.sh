# The first process of a node (or of the controller's machine): a daemon's parent, which also
# takes in the processes that others leave behind. Slurm itself does not collect those, and
# would take them for processes of a job.
set -eu
name=$1
shift
echo "$name" >/proc/sys/kernel/hostname
mount -t tmpfs tmpfs /dev/shm
again=${SLURM_CONF%/*}/again.$name
while :; do
    "$@" &
    wait $! || [ -e "$again" ]
    # Its daemon is restarted, and all else goes on.
    rm "$again" 2>/dev/null || break
done
