# rdmatune reconcile against a whole machine: programs that rewrite what it manages, a
# driver that is bound anew, links and CPUs that come and go, processes that start, a
# spec that changes, a full disk, kill -9, and irqbalance. What holds is read from the
# kernel; the daemon's own word is used for who did it and how long it took.
set -u
failed=0
log() { echo "reconcile: $*"; }
ok() { log "ok: $*"; }
bad() { log "FAILED: $*"; failed=1; }
check() { # NAME WANT GOT
	if [ "$2" = "$3" ]; then ok "$1: $3"; else bad "$1: want '$2', got '$3'"; fi
}
now() { cut -d. -f1 /proc/uptime; }
# within waits for a command to succeed, for at most two minutes, and says when it does not.
within() { # WHAT COMMAND...
	what=$1; shift
	deadline=$(($(now) + 120))
	until "$@" > /dev/null 2>&1; do
		if [ "$(now)" -ge $deadline ]; then
			bad "$what: not within two minutes"
			rdmatune status; tail -n 20 "$OUT/daemon.log"
			return 1
		fi
		sleep 0.1
	done
	ok "$what"
}

policy=/sys/devices/system/cpu/cpufreq/policy2
idle=/sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us
pci=$(basename "$(readlink /sys/class/net/eth1/device)")
vectors() { ls /sys/bus/pci/devices/$pci/msi_irqs; }
mask() { # NUMBER: a read while the kernel moves a vector sees the affinity before, or nothing
	last='' same=0 reads=0
	while [ $same -lt 3 ] && [ $reads -lt 300 ]; do
		read -r got < /proc/irq/$1/smp_affinity_list 2> /dev/null || got=''
		if [ -n "$got" ] && [ "$got" = "$last" ]; then same=$((same + 1)); else same=0; fi
		last=$got reads=$((reads + 1))
		sleep 0.02
	done
	echo "$got"
}
masks() { for i in $(vectors); do mask $i; done | sort -u | xargs; }
first() { vectors | head -n 1; }
limits() { echo $(cat $policy/scaling_governor $policy/scaling_min_freq $policy/scaling_max_freq); }
usecs() { ethtool -c eth1 | awk '/^rx-usecs:/ { print $2 }'; }
latency() { od -An -td4 -N4 /dev/cpu_dma_latency | xargs; }
is() { [ "$1" = "$($2)" ]; } # WANT COMMAND
field() { # NAME of the status: the first number or text of that name
	rdmatune status --json | tr ',{}' '\n\n\n' | sed -n "s/^\"$1\"://p" | head -n 1
}
heals() { field heals; }
healthy() { field healthy; }
more() { [ "$(heals)" -gt "$1" ]; }
# told says whether the newest drift of a setting names its writer.
told() { rdmatune status --json | tr '{' '\n' | grep "\"setting\":\"$1\"" | grep -q "$2"; }

before_limits=$(limits) before_masks=$(masks) before_usecs=$(usecs) before_latency=$(latency)
cp "$(command -v sleep)" /tmp/trainer
cp reconcile.hcl /tmp/node.hcl

start() {
	rdmatune reconcile --log-level info /tmp/node.hcl >> "$OUT/daemon.log" 2>&1 &
	daemon=$!
	within "$1" is true healthy
}
in_force() {
	check "$1: cpufreq" "performance 2200000 2200000" "$(limits)"
	check "$1: idle states" 2 "$(cat $idle)"
	check "$1: interrupts" 3 "$(masks)"
	check "$1: rx-usecs" 0 "$(usecs)"
	within "$1: the machine's idle latency" is 3 latency
}

start "the daemon is up"
in_force "applied at the start"
rdmatune status > "$OUT/status.txt" 2>&1
grep -q writes "$OUT/status.txt" && ok "status says which events are heard"
rdmatune reconcile /tmp/node.hcl > "$OUT/second.log" 2>&1; check "a second daemon's exit code" 1 $?
grep -q "pid $daemon" "$OUT/second.log"; check "it names the first" 0 $?
rdmatune destroy --auto-approve > "$OUT/destroy.log" 2>&1; check "destroy's exit code beside a daemon" 1 $?

# Writers, each a program of its own, so that the daemon must name it.
named=0
rewrite() { # SETTING FILE VALUE READS WANT
	n=$(heals)
	sh -c "echo $3 > $2" writer
	within "$1 of $2 is healed" more "$n"
	check "$1 is right again" "$5" "$($4)"
	told "$1" '"writer":"pid [0-9]* ..*"known":true' && named=$((named + 1))
}
rewrite cpus /proc/irq/$(first)/smp_affinity_list 1 masks 3
rewrite governor $policy/scaling_governor powersave limits "performance 2200000 2200000"
rewrite max_khz $policy/scaling_max_freq 3000000 limits "performance 2200000 2200000"
rewrite cstate_max_latency $idle 0 "cat $idle" 2
# A sweep may come between a write and its event: one of them may stay without a name.
[ $named -ge 3 ] && ok "writers were named: $named of 4" || bad "writers were named: $named of 4"
n=$(heals)
ethtool -C eth1 rx-usecs 100
within "coalescing is healed" is 0 usecs

# The kernel's own doing.
ip link set eth1 down; ip link set eth1 up
within "after the link was down: interrupts" is 3 masks
within "after the link was down: rx-usecs" is 0 usecs
echo 0 > /sys/devices/system/cpu/cpu3/online
sleep 1
echo 1 > /sys/devices/system/cpu/cpu3/online
within "after CPU 3 was offline: interrupts" is 3 masks
within "after CPU 3 was offline: healthy" is true healthy
echo $pci > /sys/bus/pci/drivers/e1000e/unbind
sleep 1
echo $pci > /sys/bus/pci/drivers/e1000e/bind
ip link set eth1 up
rdma link add rxe1 type rxe netdev eth1
back() { [ -n "$(vectors)" ] && [ "$(masks)" = 3 ]; }
within "after the driver was bound anew: interrupts" back
within "after the driver was bound anew: rx-usecs" is 0 usecs
within "after the driver was bound anew: healthy" is true healthy

ip link add v0 numtxqueues 4 numrxqueues 4 type veth peer name v1 numtxqueues 4 numrxqueues 4
p=$(field passes)
ethtool -L v0 rx 2 tx 2; check "ethtool -L" 0 $?
looked() { [ "$(field passes)" -gt "$p" ]; }
within "a change of a netdev's queues leads to a look" looked
within "after a change of queues: healthy" is true healthy

# New processes of a workload.
/tmp/trainer 600 & one=$!
pinned() { taskset -pc $1 | grep -q ': 2$'; }
within "a new process is pinned" pinned $one
i=0
while [ $i -lt 100 ]; do env true; i=$((i + 1)); done
/tmp/trainer 600 & two=$!
within "a process that starts after a hundred others is pinned" pinned $two
taskset -pc 0 $two > /dev/null
within "a process that somebody moved is pinned again" pinned $two

RDMATUNE_WORKLOAD=named sleep 600 & three=$!
i=0 # not as late as a whole look, which comes every two minutes
until pinned $three || [ $i = 600 ]; do sleep 0.1; i=$((i + 1)); done
check "a new process that names its workload is pinned" yes "$(pinned $three && echo yes)"

# A path switch, once.
rdmatune bench serve --device rxe0 --workload bench --port 7471 > "$OUT/serve.log" 2>&1 &
server=$!
listens() { ss -tln | grep -q :7471; }
within "the server listens" listens
rdmatune bench connect 10.77.0.1 --device rxe0 --workload bench --sizes 8B --rate 20 --duration 1h --json > "$OUT/bench.json" 2> "$OUT/connect.log" &
client=$!
connected() { rdma res show qp link rxe0 | grep -q 'type RC state RTS'; }
within "the client is connected" connected
hinted() { rdmatune connections 2> /dev/null | grep -q '8 KiB'; }
within "a transport that started later follows the hint" hinted
sed 's/8KiB/16KiB/' reconcile.hcl > /tmp/new.hcl && mv /tmp/new.hcl /tmp/node.hcl
switched() { rdmatune connections 2> /dev/null | grep -q '16 KiB'; }
within "a change of the spec switches its connection" switched
sleep 5 # two sweeps more: no second switch

# An adversary.
sh -c "while :; do echo 0 > /proc/irq/$(first)/smp_affinity_list; done" adversary & adversary=$!
contested() { rdmatune status --json | grep -q '"contested":\[{'; }
within "what is rewritten again and again is contested" contested
told cpus adversary; check "the adversary is named" 0 $?
sh -c "echo 3000000 > $policy/scaling_max_freq" writer
within "the rest is healed meanwhile" is "performance 2200000 2200000" limits
ticks() { awk '{ print $14 + $15 }' /proc/$daemon/stat; }
sleep 5
t=$(ticks) p=$(field passes); sleep 10; t=$(($(ticks) - t)) p=$(($(field passes) - p))
log "measured: while an adversary writes in a loop, the daemon takes $((t * 100 / 1000)) % of a CPU and makes $p passes in 10 s"
kill $adversary; wait $adversary 2> /dev/null
check "still contested" 0 "$(contested; echo $?)"
date -s "$(date -d @$(($(date +%s) + 100000)) '+%Y-%m-%d %H:%M:%S')" > /dev/null
kill -HUP $daemon
within "after a jump of the clock SIGHUP tries again" is 3 masks
date -s "$(date -d @$(($(date +%s) - 200000)) '+%Y-%m-%d %H:%M:%S')" > /dev/null
within "and all is well" is true healthy

# Bad news.
echo 'workload "trainer" {' > /tmp/new.hcl && mv /tmp/new.hcl /tmp/node.hcl
within "an invalid spec is reported" is false healthy
sh -c "echo 3000000 > $policy/scaling_max_freq" writer
within "the last good spec is kept" is "performance 2200000 2200000" limits
sed 's/8KiB/16KiB/' reconcile.hcl > /tmp/new.hcl && mv /tmp/new.hcl /tmp/node.hcl
within "it is valid again" is true healthy

# Killed in the middle of it all, again and again.
i=0
while [ $i -lt 5 ]; do
	echo 1 > /proc/irq/$(first)/smp_affinity_list
	echo 3000000 > $policy/scaling_max_freq
	kill -9 $daemon; wait $daemon 2> /dev/null
	ethtool -C eth1 rx-usecs $((10 + i))
	start "started again after kill -9 ($i)"
	i=$((i + 1))
done
in_force "after kill -9"

# The real irqbalance.
irqbalance --foreground --interval 1 > "$OUT/irqbalance.log" 2>&1 & balancer=$!
agreed() { [ "$(field irqbalance_agreed)" = true ] && rdmatune status | grep -q 'leaves 3'; }
within "irqbalance agrees to leave the interrupts alone" agreed
sleep 5
check "interrupts beside irqbalance" 3 "$(masks)"
kill -0 $balancer; check "irqbalance still runs" 0 $?

# A clean stop leaves the tuning, or restores it.
kill -TERM $daemon; wait $daemon; check "exit code of a clean stop" 0 $?
check "the stop left the tuning" "performance 2200000 2200000 / 3" "$(limits) / $(masks)"
check "the kernel dropped what only a process holds" "$before_latency" "$(latency)"
rdmatune reconcile --on-stop restore /tmp/node.hcl >> "$OUT/daemon.log" 2>&1 & daemon=$!
within "up for the last time" is true healthy
kill -INT $client; wait $client; check "the client's exit code" 0 $?
kill -INT $server; wait $server
kill -TERM $daemon; wait $daemon; check "exit code of a stop that restores" 0 $?
check "cpufreq again" "$before_limits" "$(limits)"
check "idle states again" 0 "$(cat $idle)"
check "rx-usecs again" "$before_usecs" "$(usecs)"
check "the processes' CPUs again" "0-3 0-3 0-3" "$(for p in $one $two $three; do taskset -pc $p | sed 's/.*: //'; done | xargs)"
kill $balancer $one $two $three
cat "$OUT/daemon.log" | tail -n 60
exit $failed
