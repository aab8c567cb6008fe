# What the lab promises of its machine. Each fact goes to a file of its own, which
# the test compares; the exit code is 7 so that the test can tell it from any other.
set -eu
cd "$OUT"
cat /lab/in.txt > file

ls /sys/class/infiniband | xargs echo > devices
cat /sys/class/infiniband/rxe*/ports/1/state > states
for d in rxe0 rxe1; do
	n=$(ls /sys/class/infiniband/$d/device/net 2>/dev/null || cat /sys/class/infiniband/$d/parent)
	echo "$d $n node $(cat /sys/class/net/$n/device/numa_node)"
done > netdevs

for n in node0 node1; do echo "$n $(cat /sys/devices/system/node/$n/cpulist)"; done > nodes
for p in 0 1 2 3; do
	cd /sys/devices/system/cpu/cpufreq/policy$p
	# The unquoted list drops the kernel's trailing blank.
	echo $(cat scaling_driver) $(cat scaling_available_frequencies)
done > "$OUT/cpufreq"
cd "$OUT"

for n in eth0 eth1; do echo "$n $(ls /sys/class/net/$n/device/msi_irqs | wc -l)"; done > vectors
ethtool -C eth0 rx-usecs 250
ethtool -c eth0 | awk '/^rx-usecs:/ { print $2 }' > rx-usecs
irq=$(ls /sys/class/net/eth0/device/msi_irqs | head -n 1)
echo 2 > /proc/irq/$irq/smp_affinity_list
cat /proc/irq/$irq/smp_affinity_list > irq

cd /sys/devices/system/cpu/cpufreq/policy3
echo performance > scaling_governor
echo 2200000 > scaling_max_freq
echo 2200000 > scaling_min_freq
echo $(cat scaling_min_freq scaling_max_freq scaling_cur_freq) > "$OUT/locked"
cd "$OUT"

# Real RC traffic, over the wire: the first card's counter must move.
sent() { cat /sys/class/net/eth0/statistics/tx_packets; }
before=$(sent)
taskset -c 2 ib_send_lat -F -d rxe1 -x 1 -s 8 -n 200 > server.log 2>&1 &
until ss -tln | grep -q :18515; do sleep 0.05; done
taskset -c 0 ib_send_lat -F -d rxe0 -x 1 -s 8 -n 200 lab1 > client.log 2>&1
wait
grep -E '^ *8 +200 ' client.log
echo "$before $(sent)" > wire

# The kernel's own list of queue pairs sees both ends while they are connected.
taskset -c 2 ib_send_bw -F -d rxe1 -x 1 -s 4096 -D 5 > server2.log 2>&1 &
until ss -tln | grep -q :18515; do sleep 0.05; done
taskset -c 0 ib_send_bw -F -d rxe0 -x 1 -s 4096 -D 5 lab1 > client2.log 2>&1 &
tries=0
until [ "$(rdma res show qp | grep -c 'type RC.*state RTS')" -ge 1 ]; do
	tries=$((tries + 1)); [ $tries -lt 200 ] || exit 1
	sleep 0.05
done
echo "$(rdma res show qp | grep -c 'type RC') RC queue pairs" > 'queue pairs'
wait
exit 7
