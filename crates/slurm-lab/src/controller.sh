# The daemons of the controller's machine.
set -eu
cd "$1"
# Comes back when its socket is there.
munged --key-file "$PWD/etc/munge.key" --socket "$PWD/run/munge.socket" \
    --pid-file "$PWD/run/munged.pid" --log-file "$PWD/log/munged.log" \
    --seed-file "$PWD/run/munge.seed"
exec slurmctld -D -i
