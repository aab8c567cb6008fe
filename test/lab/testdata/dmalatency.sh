# The machine's bound on the wake-up from idle, from the first plan to the last: what the
# kernel says is in effect is compared with what rdmatune says.
set -u
failed=0
check() { # NAME WANT GOT
	if [ "$2" = "$3" ]; then echo "dmalatency: ok: $1: $3"; else echo "dmalatency: FAILED: $1: want '$2', got '$3'"; failed=1; fi
}
effective() { od -An -td4 -N4 /dev/cpu_dma_latency | tr -d ' '; }
until_effective() { # VALUE : for at most a minute
	tries=0
	until [ "$(effective)" = "$1" ] || [ $tries -ge 300 ]; do tries=$((tries + 1)); sleep 0.2; done
}
start() {
	rdmatune reconcile w.hcl >> "$OUT/daemon.log" 2>&1 &
	daemon=$!
	until rdmatune status > /dev/null 2>&1; do
		kill -0 $daemon 2> /dev/null || { cat "$OUT/daemon.log"; exit 1; }
		sleep 0.2
	done
}
spec() { # BLOCK FILE
	printf 'workload "w" {\n%s\n}\n' "$1" > new; mv new "$2"
}
bound() { spec "cpu_dma_latency { max_latency = \"$1\" }" "${2:-w.hcl}"; }
plan() { rdmatune plan --detailed-exitcode w.hcl > plan.txt; echo $? $(grep -o 'max_latency.*' plan.txt); }
none=$(effective)
held='rdmatune reconcile (process [0-9@]*) holds it'
matches() { echo "$2" | grep -q "^$1\$" && echo yes || { echo "$2"; }; }

bound 2us
alone='only rdmatune reconcile can hold it: the kernel drops it when its holder exits'
check "plan without a daemon" "0 max_latency no limit -> 2us: $alone" "$(plan)"
rdmatune apply --auto-approve w.hcl > apply.txt; check "apply without a daemon" 0 $?
check "in effect" "$none" "$(effective)"

start
until_effective 2
check "in effect with a daemon" 2 "$(effective)"
check "plan beside it" 0 "$(plan)"
bound 0us
until_effective 0
check "in effect after the spec changed" 0 "$(effective)"
bound 20us
until_effective 20
bound 5us other.hcl
rdmatune plan --compact-warnings --detailed-exitcode other.hcl > plan.txt; code=$?
check "a plan of another value beside it" yes "$(matches "0 max_latency 20us -> 5us: $held" "$code $(grep -o 'max_latency.*' plan.txt)")"

kill -9 $daemon; wait $daemon
check "in effect after kill -9" "$none" "$(effective)"
check "plan after it" "0 max_latency no limit -> 20us: $alone" "$(plan)"
start
until_effective 20
check "in effect with the next daemon" 20 "$(effective)"
spec '' w.hcl
until_effective "$none"
check "in effect when nobody wants it" "$none" "$(effective)"
bound 20us
until_effective 20
kill $daemon; wait $daemon; check "the daemon's end" 0 $?
check "in effect after its end" "$none" "$(effective)"
ls /run/rdmatune/cpu_dma_latency.json 2> /dev/null && failed=1
[ $failed = 0 ] || cat "$OUT/daemon.log"
exit $failed
