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
# and what was about to start a process may have done so. The network is held open meanwhile:
# otherwise the next lab could get its number, and lose its processes here.
{
    network=$(readlink /proc/$$/fd/4)
    # A holder that was ended before it had a network of its own is still in the machine's.
    while [ "$network" != "$(readlink /proc/$$/ns/net)" ]; do
        processes=$(find /proc/[0-9]*/ns/net -maxdepth 0 -lname "net:?${network#net:?}" 2>/dev/null)
        [ -n "$processes" ] || break
        for process in $processes; do
            process=${process#/proc/}
            kill -KILL "${process%/ns/net}" 2>/dev/null
        done
    done
} 4<"/proc/$holder/ns/net"
kill -KILL "$holder" 2>/dev/null
find /sys/fs/cgroup/"${folder##*/}".* /sys/fs/cgroup/*/"${folder##*/}".* \
    -depth -type d -exec rmdir {} + 2>/dev/null
rm -rf --one-file-system "$folder"
