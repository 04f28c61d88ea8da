#!/bin/bash
# The first process of one node, in network, mount and process namespaces of its own: when it ends, so does the node.
# Environment: STATE (the node's directory), CONTAINERD_CONFIG, KUBELET, KUBELET_ARGS, PAUSE_IMAGE, IMAGES.
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
mount --make-rshared /

containerd --config "$CONTAINERD_CONFIG" >"$STATE/containerd.log" 2>&1 &
ctr() { command ctr --address "$STATE/c.sock" --namespace k8s.io "$@"; }
until ctr version >/dev/null 2>&1; do
    kill -0 $! || { echo "containerd ended before it answered: see containerd.log"; exit 1; }
    sleep 0.1
done
ctr images import "$PAUSE_IMAGE"
# shellcheck disable=SC2086
"$KUBELET" $KUBELET_ARGS >"$STATE/kubelet.log" 2>&1 &
for image in $IMAGES; do ctr images import "$image"; done
touch "$STATE/images-imported"
wait -n # containerd or the kubelet ended: neither should
