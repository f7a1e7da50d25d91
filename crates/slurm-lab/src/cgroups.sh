# Gives a node a hierarchy of cgroups of its own, of one version, and goes on in it.
# The machine may have both: Slurm refuses version 2 if it sees any of version 1.
set -eu
version=$1
name=$2
preload=$3
shift 3
case $version in
1) controllers="devices freezer" ;;
2) controllers=unified ;;
esac
for controller in $controllers; do
    if [ "$version" = 2 ] && [ ! -d /sys/fs/cgroup/unified ]; then
        folder=/sys/fs/cgroup/$name
    else
        folder=/sys/fs/cgroup/$controller/$name
    fi
    mkdir -p "$folder"
    echo 0 >"$folder/cgroup.procs"
done
export PRELOAD=$preload VERSION=$version
exec unshare --cgroup sh -euc '
    if [ "$VERSION" = 2 ]; then
        mount -t cgroup2 cgroup2 /sys/fs/cgroup
        mkdir -p /sys/fs/cgroup/system.slice
        export LD_PRELOAD="$PRELOAD"
    else
        mount -t tmpfs tmpfs /sys/fs/cgroup
        for controller in devices freezer; do
            mkdir "/sys/fs/cgroup/$controller"
            mount -t cgroup -o "$controller" "$controller" "/sys/fs/cgroup/$controller"
        done
    fi
    unset PRELOAD VERSION
    exec "$@"
' cgroups "$@"
