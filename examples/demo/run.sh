#!/bin/sh
# Shows rdmatune's main job on any Linux machine, without RDMA hardware and without
# root: a simulated node, two real processes on the soft provider that exchange
# messages, a plan, an apply that tunes the node and switches the live connection,
# the experiment that it recorded, and a destroy that takes everything back.
# Everything is written to a temporary directory, which is removed in the end.
set -eu
cd "$(dirname "$0")/../.."

tmp=$(mktemp -d)
server='' client=''
cleanup() {
	[ -z "$client" ] || kill "$client" 2>/dev/null || true
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

echo "Building rdmatune ..."
go build -o "$tmp/bin/rdmatune" ./cmd/rdmatune
PATH=$tmp/bin:$PATH
spec=examples/demo/node.hcl
node="--node sim:small --state-dir $tmp/state"
run() { # COMMAND ARGS... : show a command, and run it on the simulated node
	echo
	echo "\$ $*"
	"$@" $node
}

# A line that the demonstration waits for; a machine may be slow, but not for ever.
await() { # FILE TEXT
	tries=0
	until grep -q "$2" "$1" 2>/dev/null; do
		tries=$((tries + 1))
		if [ $tries -gt 600 ]; then
			echo "never saw '$2':" >&2
			cat "$1" >&2
			exit 1
		fi
		sleep 0.1
	done
}

rdmatune bench serve --port 0 --once $node >"$tmp/server.log" 2>&1 &
server=$!
await "$tmp/server.log" Serving
addr=$(sed -n 's/.* at \(.*\)\.$/\1/p' "$tmp/server.log")
rdmatune bench connect "$addr" --sizes 8B,4KiB,64KiB --duration 6s $node >"$tmp/client.log" 2>&1 &
client=$!
tries=0
until rdmatune plan $spec $node 2>/dev/null | grep -q 'connection\[1\]'; do
	tries=$((tries + 1))
	[ $tries -lt 300 ] || { echo "the processes never connected" >&2; exit 1; }
	sleep 0.1
done
echo "Two processes exchange messages over a live connection (pids $server and $client)."

run rdmatune plan $spec
echo
echo "\$ rdmatune apply $spec --auto-approve"
rdmatune apply $spec --auto-approve $node >"$tmp/apply.log" 2>&1 || { cat "$tmp/apply.log"; exit 1; }
# The plan that apply shows first is the one above.
sed -n '/^\[/p; /^Apply/p' "$tmp/apply.log"
run rdmatune plan $spec

echo
echo "... meanwhile the messages went on:"
wait "$client"
client=''
cat "$tmp/client.log"
wait "$server"
server=''
sed -n '/^Client/p' "$tmp/server.log"

run rdmatune experiments list
applied=$(rdmatune experiments list $node | awk '$4 == "apply" { print $1 }')
run rdmatune experiments show "$applied"
echo
echo "\$ rdmatune destroy --auto-approve"
rdmatune destroy --auto-approve $node >"$tmp/destroy.log" 2>&1 || { cat "$tmp/destroy.log"; exit 1; }
sed -n '/^Destroy/p' "$tmp/destroy.log"
