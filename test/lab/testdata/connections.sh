# Every queue pair of real devices: those of rdmatune's transport with lanes and granted
# capabilities, those of a program that is not rdmatune's, and the kernel's own. What
# rdma(8) says of the same devices is the yardstick. In the end, a path that dies.
set -u
failed=0
log() { echo "connections: $*"; }
check() { # NAME WANT GOT
	if [ "$2" = "$3" ]; then log "ok: $1: $3"; else log "FAILED: $1: want '$2', got '$3'"; failed=1; fi
}
has() { # NAME PATTERN FILE
	if grep -Eq "$2" "$3"; then log "ok: $1"; else log "FAILED: $1: no '$2' in"; cat "$3"; failed=1; fi
}
die() { log "FAILED: $*"; exit 1; }
now() { cut -d. -f1 /proc/uptime; }
until_true() { # WHAT COMMAND... : for at most two minutes
	what=$1; shift
	deadline=$(($(now) + 120))
	until "$@" > /dev/null 2>&1; do
		[ "$(now)" -lt $deadline ] || die "$what: not within two minutes"
		sleep 0.2
	done
}

rdmatune bench serve --device rxe0 --workload bench --port 7471 > "$OUT/serve.log" 2>&1 &
server=$!
listens() { ss -tln | grep -q :7471; }
until_true "the server listens" listens
RDMA_LOW_LATENCY_HINT=2KiB rdmatune bench connect 10.77.0.1 --device rxe1 --workload bench --sizes 8B,4KiB \
	--duration 1h --json > "$OUT/bench.json" 2> "$OUT/connect.log" &
client=$!
connected() { rdma res show qp link rxe1 | grep -q 'type RC state RTS'; }
until_true "the client is connected" connected
ib_send_lat -F -d rxe1 -x 1 -s 8 -n 5000000 > "$OUT/foreign.log" 2>&1 &
foreign=$!
foreign_listens() { ss -tln | grep -q :18515; }
until_true "the foreign program listens" foreign_listens
ib_send_lat -F -d rxe0 -x 1 -s 8 -n 5000000 lab1 > "$OUT/foreign2.log" 2>&1 &
foreign2=$!
foreign_up() { [ "$(rdma res show qp link rxe1 | grep -c 'type RC state RT')" -ge 2 ]; }
until_true "the foreign program is connected" foreign_up

rdmatune connections > "$OUT/connections.txt" || die "connections ends with $?"
rdmatune connections --json > "$OUT/connections.json" || die "connections --json ends with $?"
cat "$OUT/connections.txt"
has "the client's hint and origin" "process $client rdmatune, workload bench" "$OUT/connections.txt"
has "its origin" 'hint 2 KiB, from RDMA_LOW_LATENCY_HINT=2KiB \(ibverbs on rxe1\)' "$OUT/connections.txt"
has "the server" "process $server rdmatune, workload bench" "$OUT/connections.txt"
has "a queue pair of ours with its kernel state" '0x[0-9a-f]+ +RC +RTS +0x[0-9a-f]+ 10\.77\.0\.1:7471 +1 +low_latency' "$OUT/connections.txt"
has "the kernel's own" 'ib_core \(kernel module\)' "$OUT/connections.txt"
has "the foreign program" "process $foreign ib_send_lat" "$OUT/connections.txt"

# The same queue pairs as rdma(8) lists, by number.
for dev in rxe0 rxe1; do
	rdma res show qp link $dev | sed -n 's/.* lqpn \([0-9]*\) .*/\1/p' | sort -n > "$OUT/$dev.rdma"
	rdmatune connections --json | tr ',{}' '\n\n\n' | awk -v dev=$dev '
		/"device":/ { split($0, a, "\""); here = (a[4] == dev) }
		/"lqpn":/ && here { gsub(/[^0-9]/, ""); print }' | sort -n > "$OUT/$dev.ours"
	check "queue pairs of $dev" "$(xargs < "$OUT/$dev.rdma")" "$(xargs < "$OUT/$dev.ours")"
done

rdmatune audit > "$OUT/audit.txt"; check "audit's exit code" 3 $?
has "two readings of one variable" 'processes disagree: ' "$OUT/audit.txt"
rdmatune doctor > "$OUT/doctor.txt" || die "doctor ends with $?"
has "what the device grants" 'features, rxe.*: inline up to [1-9][0-9]* B, queues up to [0-9]+, 4 completion vectors' "$OUT/doctor.txt"
has "that it is software" 'software RDMA' "$OUT/doctor.txt"
has "addresses" 'gid, rxe0 port 1.*RoCE v2' "$OUT/doctor.txt"

# A path that dies in silence: what rxe1 sends goes to nobody, while the control channel,
# which stays within the machine, lives. Soft RoCE itself would try for ever.
ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:99 dev eth1 nud permanent
ended() { grep -q 'connection ended' "$OUT/connect.log"; }
until_true "the dead path is noticed" ended
wait $client; check "the client's exit code on a dead path" 1 $?
has "why it ended" 'no send has completed for at least 8s: peer gone' "$OUT/connect.log"

kill $server $foreign $foreign2 2> /dev/null
exit $failed
