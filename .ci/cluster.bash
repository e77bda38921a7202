# What the scripts that try real nodes share. Sourced after `name` was set; gives lockstead, work, base, pids.

cargo build --locked --quiet
lockstead=$PWD/${CARGO_TARGET_DIR:-target}/debug/lockstead
[[ ${CARGO_TARGET_DIR:-} == /* ]] && lockstead=$CARGO_TARGET_DIR/debug/lockstead
work=$(mktemp -d)
pids=()

# Mounts below the work directory go with it.
stop_all() {
    kill -KILL $(jobs -p) 2>/dev/null || true
    wait 2>/dev/null || true
    awk -v below="$work/" 'index($2, below) == 1 { print $2 }' /proc/mounts | xargs -r umount 2>/dev/null || true
    rm -rf "$work"
}
trap stop_all EXIT
trap 'exit 1' INT TERM

fail() {
    echo "$name: $*" >&2
    tail -n 5 "$work"/n?.log >&2 || true
    exit 1
}

# Ports below those that the system gives to outgoing connections.
free_base() {
    local base port
    while true; do
        base=$((20000 + RANDOM % 12000))
        for port in $((base + 1)) $((base + 2)) $((base + 3)) $((base + 101)) $((base + 102)) $((base + 103)); do
            if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then continue 2; fi
        done
        echo "$base"
        return
    done
}
base=$(free_base)
api() { echo "127.0.0.1:$((base + $1))"; }
endpoint() { echo "http://$(api "$1")"; }

# Starts a node, as a child of this shell, behind the words of `under` if there are any; the rest are its own options.
start() {
    local node=$1
    shift
    "${under[@]}" "$lockstead" serve --node-id "$node" --data-dir "$work/n$node" \
        --listen "$(api "$node")" --peer-listen "127.0.0.1:$((base + 100 + node))" "$@" >"$work/n$node.log" 2>&1 &
    pids[node]=$!
}
under=(env)

# Whether a node gets ready; not if it ends first or takes a minute.
gets_ready() {
    local node=$1 give_up=$((SECONDS + 60))
    while ((SECONDS < give_up)) && kill -0 "${pids[node]}" 2>/dev/null; do
        grep -qs '^ready:' "$work/n$node.log" && return
        sleep 0.05
    done
    return 1
}

# The id of the leader, once one node sees this many members that vote and one that leads.
leader_of() {
    local voters=$1 status give_up=$((SECONDS + 60))
    shift
    while ((SECONDS < give_up)); do
        for node in "$@"; do
            status=$("$lockstead" status --json --timeout 2s --endpoints "$(endpoint "$node")" 2>/dev/null || true)
            if [[ $(grep -oE '"role":"(leader|follower)"' <<<"$status" | wc -l) == "$voters" &&
                $status =~ \"leader\":([0-9]+) && " $* " == *" ${BASH_REMATCH[1]} "* ]]; then
                echo "${BASH_REMATCH[1]}"
                return
            fi
        done
        sleep 0.1
    done
    fail "no leader among nodes $*"
}
