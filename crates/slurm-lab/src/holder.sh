# Makes a lab's namespaces what they should be, and holds them until it is killed.
set -eu
folder=$1
root=$2

echo lab >/proc/sys/kernel/hostname
ip link set lo up
# With 127.0.0.1 alone, the C library finds no address for any name.
ip address add 192.0.2.1/32 dev lo

if [ -n "$root" ]; then
    # A root of its own: the system folders of the other Debian, all others of this machine.
    new=$folder/root
    mkdir "$new"
    mount -t tmpfs -o mode=755 tmpfs "$new"
    # Else the folder above it, bound below, would contain it again.
    mount --make-unbindable "$new"
    for entry in /* /.[!.]*; do
        name=${entry#/}
        case $name in usr | etc | bin | sbin | lib*) continue ;; esac
        if [ -L "$entry" ]; then
            cp -P "$entry" "$new/"
        elif [ -d "$entry" ]; then
            mkdir "$new/$name"
            mount --rbind "$entry" "$new/$name"
        fi
    done
    for entry in "$root"/*; do
        name=${entry##*/}
        case $name in
        bin | sbin | lib*) cp -P "$entry" "$new/" ;;
        usr | etc)
            mkdir "$new/$name"
            mount --bind "$entry" "$new/$name"
            mount -o remount,bind,ro "$new/$name"
            ;;
        esac
    done
    mount --rbind /usr/local "$new/usr/local"
    mkdir "$new/.old"
    cd "$new"
    pivot_root . .old
    umount --lazy /.old
    rmdir /.old
    mount --make-private /
fi

mount --bind "$folder/etc/hosts" /etc/hosts
echo $$
exec >/dev/null
exec sleep infinity
