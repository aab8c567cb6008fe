# The real irqbalance, with one of the cards' vectors banned by its administrator, and the
# test that negotiates with it over the other card's.
set -u
mkdir -p /run/irqbalance
ours=$(ls /sys/class/net/eth1/device/msi_irqs | xargs)
set -- $(ls /sys/class/net/eth0/device/msi_irqs)
irqbalance --foreground --interval 1 --banirq="$1" > "$OUT/irqbalance.log" 2>&1 &
daemon=$!
until ls /run/irqbalance/irqbalance*.sock > /dev/null 2>&1; do
	kill -0 $daemon || { cat "$OUT/irqbalance.log"; exit 1; }
	sleep 0.1
done
RDMATUNE_IRQS="$ours" RDMATUNE_WITNESSES="$2 $3" RDMATUNE_BANNED="$1" irqbalance.test -test.v -test.run '^TestDaemon$' || exit 1
kill -0 $daemon || exit 2
