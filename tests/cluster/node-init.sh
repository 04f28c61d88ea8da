#!/bin/bash
# The first process of one node, in network, mount and process namespaces of its own: when it ends, so does the node.
# Environment: STATE (the node's directory), CONTAINERD_CONFIG, KUBELET, KUBELET_ARGS, PAUSE_IMAGE, IMAGES, and BOOT_ID
# where the node boots again.
set -euo pipefail

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run # pod namespaces and shim sockets stay in here
mkdir /run/netns /run/lock
for directory in /var/log /var/lib/cni; do
    mkdir -p "$STATE/private$directory" "$directory" # another cluster that ends may have removed it
    mount --bind "$STATE/private$directory" "$directory"
done
# The kubelet sets vm and kernel parameters, which no namespace holds: give it copies, so that the host keeps its own.
for area in vm kernel; do
    copy=$STATE/private/sys-$area
    mkdir -p "$copy"
    (
        cd "/proc/sys/$area"
        find . -type d -exec mkdir -p "$copy/{}" \;
        find . -type f -perm -u+r -exec sh -c 'cat "$2" >"$1/$2" 2>/dev/null || true' _ "$copy" {} \;
    )
    mount --bind "$copy" "/proc/sys/$area"
done
if [ -n "${BOOT_ID:-}" ]; then echo "$BOOT_ID" >"$STATE/private/sys-kernel/random/boot_id"; fi
rm -rf "$STATE/containerd-state" # lies in /run elsewhere, and ends with the boot
mount --make-rshared /

# Starts a program again when it has ended, a second later, as systemd does on a node; gives it up after $STARTS starts.
# Held off by a file, as a test makes one, it stays away without that counting.
STARTS=5
keep() {
    local name=$1 start=1 status
    shift
    while [ "$start" -le "$STARTS" ]; do
        status=0
        "$@" >>"$STATE/$name.log" 2>&1 || status=$?
        if [ -e "$STATE/$name-off" ]; then
            touch "$STATE/$name-is-off"
            while [ -e "$STATE/$name-off" ]; do sleep 0.1; done
            rm "$STATE/$name-is-off"
            continue
        fi
        echo "$name ended with status $status after start $start of $STARTS; its log ends:"
        tail -n 5 "$STATE/$name.log"
        start=$((start + 1))
        sleep 1
    done
    echo "$name is given up: the node ends"
}

keep containerd containerd --config "$CONTAINERD_CONFIG" &
ctr() { command ctr --address "$STATE/c.sock" --namespace k8s.io "$@"; }
import() {
    for _ in $(seq "$STARTS"); do
        if ctr images import "$1"; then return; fi
        sleep 1
    done
    return 1
}
until ctr version >/dev/null 2>&1; do
    kill -0 $! 2>/dev/null || exit 1
    sleep 0.1
done
import "$PAUSE_IMAGE"
# shellcheck disable=SC2086
keep kubelet "$KUBELET" $KUBELET_ARGS &
for image in $IMAGES; do import "$image"; done
touch "$STATE/images-imported"
wait -n # one of them was given up
