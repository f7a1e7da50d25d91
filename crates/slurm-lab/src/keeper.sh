# Keeps a lab: starts what holds its namespaces, and removes everything when standard input
# ends, which it does when the test's process ends in whatever way.
#
# It stays outside those namespaces. No file system of the lab is mounted here, so that
# removing the folder cannot reach into one.
folder=$1
root=$2

unshare --mount --uts --ipc --net sh "$folder/etc/holder.sh" "$folder" "$root" </dev/null &
holder=$!
exec >/dev/null

while read -r _; do :; done

# What is in the lab's network is the lab's: commands, daemons, jobs. Killing takes a moment,
# and what was about to start a process may have done so.
network=$(readlink "/proc/$holder/ns/net")
while [ -n "$network" ]; do
    processes=$(find /proc/[0-9]*/ns/net -maxdepth 0 -lname "net:?${network#net:?}" 2>/dev/null)
    [ -n "$processes" ] || break
    for process in $processes; do
        process=${process#/proc/}
        kill -KILL "${process%/ns/net}" 2>/dev/null
    done
done
find /sys/fs/cgroup/"${folder##*/}".* /sys/fs/cgroup/*/"${folder##*/}".* \
    -depth -type d -exec rmdir {} + 2>/dev/null
rm -rf --one-file-system "$folder"
