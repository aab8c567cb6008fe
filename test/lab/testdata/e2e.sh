# From a spec to the hardware and back, under traffic: a benchmark runs over the wire
# between the two soft RoCE devices, rdmatune tunes the node and switches the
# benchmark's connection in the middle, and takes everything back in the end. What the
# kernel says is compared with what rdmatune promised; rdmatune's own word counts
# nowhere.
set -u
failed=0
log() { echo "e2e: $*"; }
# run runs a command whose exit code must be WANT; if it is not, what it printed is shown.
run() { # NAME WANT COMMAND...
	name=$1 want=$2; shift 2
	"$@" > "$OUT/$name.log" 2>&1
	code=$?
	check "$name: exit code" "$want" $code
	[ $code = "$want" ] || cat "$OUT/$name.log"
}
check() { # NAME WANT GOT
	if [ "$2" = "$3" ]; then log "ok: $1: $3"; else log "FAILED: $1: want '$2', got '$3'"; failed=1; fi
}
die() { log "FAILED: $*"; rdma res show qp; tail -n 20 "$OUT"/[!c]*.log "$OUT/connect.log"; exit 1; }
now() { cut -d. -f1 /proc/uptime; }
until_true() { # WHAT COMMAND... : for at most two minutes
	what=$1; shift
	log "waiting: $what"
	deadline=$(($(now) + 120))
	until "$@" > /dev/null 2>&1; do
		[ "$(now)" -lt $deadline ] || die "$what: not within two minutes"
		sleep 0.2
	done
}

freq=/sys/devices/system/cpu/cpufreq/policy2
irqs=$(ls /sys/class/net/eth1/device/msi_irqs)
# A read while the kernel moves a vector sees the affinity before, or nothing: so each is
# read until five reads in a row agree, which are some time apart: the processor that moves it
# may be taken away in the middle.
mask() { # NUMBER
	last='' same=0 reads=0
	while [ $same -lt 5 ] && [ $reads -lt 500 ]; do
		read -r got < /proc/irq/$1/smp_affinity_list || got=''
		if [ -n "$got" ] && [ "$got" = "$last" ]; then same=$((same + 1)); else same=0; fi
		last=$got reads=$((reads + 1))
		sleep 0.02
	done
	echo $got
}
masks() { for i in $irqs; do mask $i; done | xargs; }
idle() { cat /sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us; }
limits() { echo $(cat $freq/scaling_governor $freq/scaling_min_freq $freq/scaling_max_freq); }
usecs() { ethtool -c eth1 | awk '/^rx-usecs:/ { print $2 }'; }
threads() { for t in /proc/$1/task/*; do taskset -pc "${t##*/}" | sed 's/.*: //'; done | sort -u | xargs; }
# The kernel names the thread that created a queue pair, which need not be the process's
# first: so ask by device. The client alone uses rxe1, the server alone rxe0.
qpns() { rdma res show qp link $1 | sed -n 's/.* lqpn \([0-9]*\) .* type RC state RTS .*/\1/p' | sort -n | xargs; }
# mark puts a byte, in octal, into the host's record of CPU 2's P-state port (0x5a2), so
# that the host can tell what the kernel wrote before and after.
mark() { printf "\\$1" | dd of=/dev/port bs=1 seek=1442 conv=notrunc 2> /dev/null; }

before_masks=$(masks) before_limits=$(limits) before_usecs=$(usecs)

rdmatune bench serve --device rxe0 --workload bench --port 7471 > "$OUT/serve.log" 2>&1 &
server=$!
listens() { ss -tln | grep -q :7471; }
until_true "the server listens" listens
rdmatune bench connect 10.77.0.1 --device rxe1 --workload bench --sizes 8B,4KiB,64KiB \
	--duration 1h --json > "$OUT/bench.json" 2> "$OUT/connect.log" &
client=$!
connected() { [ -n "$(qpns rxe1)" ]; }
until_true "the client is connected" connected
before_threads="$(threads $server) / $(threads $client)"
before_qpns=$(qpns rxe1) before_server_qpns=$(qpns rxe0)
# The first messages must be on the old path, or nothing is switched under traffic.
sent() { cat /sys/class/net/eth1/statistics/tx_packets; }
start=$(sent)
moving() { [ "$(sent)" -gt $((start + 500)) ]; }
until_true "traffic on the wire" moving

run validate 0 rdmatune validate e2e.hcl
run plan 2 rdmatune plan -detailed-exitcode e2e.hcl
check "plan changes nothing" "$before_limits / $before_masks / $before_usecs" "$(limits) / $(masks) / $(usecs)"
run apply 0 rdmatune apply e2e.hcl --auto-approve
mark 241

check "both processes' threads" "0,2 / 0,2" "$(threads $server) / $(threads $client)"
check "cpufreq" "performance 2200000 2200000" "$(limits)"
check "idle states" 2 "$(idle)"
check "interrupts" "3 3 3" "$(masks)"
check "rx-usecs" 0 "$(usecs)"
kill -0 $client || die "the client ended early"
after_qpns=$(qpns rxe1) after_server_qpns=$(qpns rxe0)
[ -n "$after_qpns" ] && [ "$after_qpns" != "$before_qpns" ]
check "the client's queue pair was replaced ($before_qpns -> $after_qpns)" 0 $?
[ -n "$after_server_qpns" ] && [ "$after_server_qpns" != "$before_server_qpns" ]
check "the server's queue pair was replaced ($before_server_qpns -> $after_server_qpns)" 0 $?

run plan2 0 rdmatune plan -detailed-exitcode e2e.hcl
grep -q 'No changes\.' "$OUT/plan2.log"; check "second plan says so" 0 $?

mark 242

# Somebody else's hand: only drift, which apply heals without touching the connection.
ethtool -C eth1 rx-usecs 100
echo 2 > /proc/irq/${irqs%%[!0-9]*}/smp_affinity_list
run plan3 3 rdmatune plan -detailed-exitcode e2e.hcl
run apply2 0 rdmatune apply e2e.hcl --auto-approve
check "healed" "3 3 3 / 0" "$(masks) / $(usecs)"
check "queue pairs stayed" "$after_qpns / $after_server_qpns" "$(qpns rxe1) / $(qpns rxe0)"

run destroy 0 rdmatune destroy --auto-approve
check "cpufreq again" "$before_limits" "$(limits)"
check "idle states again" 0 "$(idle)"
check "interrupts again" "$before_masks" "$(masks)"
check "rx-usecs again" "$before_usecs" "$(usecs)"
kill -0 $client || die "the client ended early"
check "both processes' threads again" "$before_threads" "$(threads $server) / $(threads $client)"

# An interrupt ends the benchmark with a whole report; its hour is there so that no slow
# machine ends it before.
kill -INT $client; wait $client; check "the client's exit code" 0 $?
kill -INT $server; wait $server; check "the server's exit code" 0 $?
check "queue pairs left" "" "$(rdma res show qp | grep 'type RC')"
run experiments 0 rdmatune experiments list
check "experiments, newest first" "destroy done, apply done, apply done, bench interrupted" \
	"$(awk 'NR > 1 { printf "%s%s %s", sep, $4, $6; sep = ", " }' "$OUT/experiments.log")"
exit $failed
