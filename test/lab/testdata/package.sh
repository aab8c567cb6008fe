# The life of the Debian package on a machine that systemd runs: installed, started,
# upgraded under a running daemon, killed, hung, removed, purged. What the kernel and
# systemd say is compared with what was promised.
set -u
failed=0
log() { echo "package: $*"; }
check() { # NAME WANT GOT
	if [ "$2" = "$3" ]; then log "ok: $1: $3"; else log "FAILED: $1: want '$2', got '$3'"; failed=1; fi
}
has() { # NAME TEXT FILE
	if grep -qF -- "$2" "$3"; then log "ok: $1"; else log "FAILED: $1: no '$2' in $3:"; cat "$3"; failed=1; fi
}
gone() { # NAME FILE
	if [ -e "$2" ]; then log "FAILED: $1: $2 is still there"; ls -lR "$2"; failed=1; else log "ok: $1"; fi
}
die() { log "FAILED: $*"; systemctl status --no-pager --full rdmatune; journalctl --no-pager -n 60 -u rdmatune; rdmatune status; exit 1; }
now() { cut -d. -f1 /proc/uptime; }
until_true() { # WHAT COMMAND... : for at most four minutes
	what=$1; shift
	log "waiting: $what"
	deadline=$(($(now) + 240))
	until "$@" > /dev/null 2>&1; do
		[ "$(now)" -lt $deadline ] || die "$what: not within four minutes"
		sleep 0.5
	done
}

freq=/sys/devices/system/cpu/cpufreq/policy2
irqs=$(ls /sys/class/net/eth1/device/msi_irqs)
# A read while the kernel moves a vector may see nothing or the affinity before.
mask() { # NUMBER
	last='' same=0 reads=0
	while [ $same -lt 3 ] && [ $reads -lt 300 ]; do
		read -r got < /proc/irq/$1/smp_affinity_list || got=''
		if [ -n "$got" ] && [ "$got" = "$last" ]; then same=$((same + 1)); else same=0; fi
		last=$got reads=$((reads + 1))
		sleep 0.02
	done
	echo $got
}
masks() { for i in $irqs; do mask $i; done | xargs; }
usecs() { ethtool -c eth1 | sed -n 's/^rx-usecs:[[:space:]]*//p'; }
in_force() { echo "$(cat $freq/scaling_governor $freq/scaling_min_freq $freq/scaling_max_freq | xargs) / $(masks) / $(usecs)"; }
# mark puts a byte, in octal, into the host's record of CPU 2's P-state port (0x5a2).
mark() { printf "\\$1" | dd of=/dev/port bs=1 seek=1442 conv=notrunc 2> /dev/null; }
property() { systemctl show --value -p $1 rdmatune; }
originals() { grep -o -e '"original".*' -e '"lineage".*' /var/lib/rdmatune/state.json | tr -d '"\n'; }
tuned="performance 2200000 2200000 / 3 3 3 / 0"
is_tuned() { [ "$(in_force)" = "$tuned" ]; }
healthy() { rdmatune status; }
changed_pid() { [ "$(property ActiveState)" = active ] && [ "$(property MainPID)" != "$pid" ] && [ "$(property MainPID)" != 0 ]; }
old=$(ls /lab/rdmatune_0.1.*.deb) new=$(ls /lab/rdmatune_0.2.*.deb)
own=$(in_force)

log "installing without a spec"
dpkg -i $old > "$OUT/install.log" 2>&1; check "install" 0 $?
check "enabled, and waits for a spec" "enabled inactive" "$(systemctl is-enabled rdmatune) $(systemctl is-active rdmatune)"
check "nothing touched" "$own" "$(in_force)"
check "version" "rdmatune 0.1.0" "$(rdmatune version)"
systemd-analyze verify --man=no /usr/lib/systemd/system/rdmatune.service > "$OUT/verify.log" 2>&1; check "systemd-analyze verify" 0 $?
check "its complaints" "" "$(cat "$OUT/verify.log")"
systemd-analyze security --offline=true --threshold=45 /usr/lib/systemd/system/rdmatune.service > "$OUT/security.log"
check "exposure at most 4.5" 0 $?
for page in rdmatune rdmatune-plan rdmatune-reconcile rdmatune-bench-connect; do
	check "man page $page" 1 "$(zcat /usr/share/man/man1/$page.1.gz | grep -c '^\.TH ')"
done
for file in bash-completion/completions/rdmatune zsh/vendor-completions/_rdmatune fish/vendor_completions.d/rdmatune.fish \
	doc/rdmatune/copyright doc/rdmatune/examples/allreduce.hcl; do
	check "$file" 1 "$(dpkg -L rdmatune | grep -cx "/usr/share/$file")"
done
check "files as packed" "" "$(dpkg -V rdmatune)"

log "started with a spec"
# A hung daemon is found within 30 s here; the unit's own time only takes longer.
mkdir -p /etc/systemd/system/rdmatune.service.d
printf '[Service]\nWatchdogSec=30s\n' > /etc/systemd/system/rdmatune.service.d/lab.conf
systemctl daemon-reload
cp /lab/package.hcl /etc/rdmatune/node.hcl
systemctl start rdmatune || die "the daemon did not start"
check "active" "active running" "$(property ActiveState) $(property SubState)"
until_true "tuned" is_tuned
until_true "healthy" healthy
check "directories" "/run/rdmatune 755 /run/rdmatune/transports 1777 /var/lib/rdmatune 700" \
	"$(for d in /run/rdmatune /run/rdmatune/transports /var/lib/rdmatune; do stat -c '%n %a' $d; done | xargs)"
rdmatune status > "$OUT/status.log" 2>&1
# What the unit takes away must not be what the daemon needs.
check "events are heard" "yes" "$(sed '1,/^EVENTS OF/d; /^$/,$d' "$OUT/status.log" | awk '{ print $2 }' | sort -u | xargs)"
held() { od -An -td4 -N4 /dev/cpu_dma_latency | xargs; }
check "the device is held open" 10 "$(held)"

log "upgraded while it runs"
pid=$(property MainPID) before=$(originals)
mark 241
dpkg -i $new > "$OUT/upgrade.log" 2>&1; check "upgrade" 0 $?
until_true "another daemon" changed_pid
until_true "healthy" healthy
mark 242
check "tuned" "$tuned / 10" "$(in_force) / $(held)"
check "version" "rdmatune 0.2.0-rc.1" "$(rdmatune version)"
check "what runs" /usr/bin/rdmatune "$(readlink /proc/"$(property MainPID)"/exe)"
check "state kept" "$before" "$(originals)"

log "reload"
pid=$(property MainPID)
sed -i 's/rx_usecs = 0/rx_usecs = 100/' /etc/rdmatune/node.hcl
systemctl reload rdmatune; check "reload" 0 $?
tuned="performance 2200000 2200000 / 3 3 3 / 100"
until_true "the changed spec is in force" is_tuned
check "the same daemon" "$pid active" "$(property MainPID) $(property ActiveState)"

log "kill -9, and drift while nobody watches"
kill -9 "$pid"
echo 2 > /proc/irq/${irqs%%[!0-9]*}/smp_affinity_list
until_true "another daemon" changed_pid
until_true "healed" is_tuned
until_true "healthy" healthy
check "restarts" 1 "$(property NRestarts)"
check "originals kept" "$before" "$(originals)"

log "a daemon that hangs"
pid=$(property MainPID)
kill -STOP "$pid"
until_true "another daemon" changed_pid
until_true "healthy" healthy
check "restarts" 2 "$(property NRestarts)"
journalctl --no-pager -u rdmatune > "$OUT/journal.log"
has "systemd says that the watchdog did it" "Watchdog timeout" "$OUT/journal.log"

log "removed"
dpkg -r rdmatune > "$OUT/remove.log" 2>&1; check "remove" 0 $?
check "the daemon" inactive "$(systemctl is-active rdmatune)"
gone "the unit" /usr/lib/systemd/system/rdmatune.service
check "the tuning stays" "$tuned" "$(in_force)"
has "and that is said" "the tuning stays in force until the next boot" "$OUT/remove.log"

log "purged while its tuning is in force"
dpkg -P rdmatune > "$OUT/purge.log" 2>&1; check "purge" 0 $?
has "the state stays, and that is said" "/var/lib/rdmatune stays" "$OUT/purge.log"
check "originals kept" "$before" "$(originals)"
gone "the options" /etc/default/rdmatune

log "installed again, and removed with the tuning"
dpkg -i $new > "$OUT/again.log" 2>&1; check "install" 0 $?
until_true "healthy" healthy
check "started by the installation" active "$(systemctl is-active rdmatune)"
check "originals kept" "$before" "$(originals)"
echo RDMATUNE_DESTROY_ON_REMOVE=1 >> /etc/default/rdmatune
dpkg -r rdmatune > "$OUT/destroy.log" 2>&1; check "remove" 0 $?
check "the node's own values" "$own" "$(in_force)"
dpkg -P rdmatune > "$OUT/purge2.log" 2>&1; check "purge" 0 $?
gone "the state" /var/lib/rdmatune
gone "the run directory" /run/rdmatune
gone "the options" /etc/default/rdmatune
check "what is left is the administrator's" "/etc/rdmatune/node.hcl" "$(find /etc/rdmatune -type f | xargs)"
check "links of systemd" "" "$(find /etc/systemd/system -name 'rdmatune.service' | xargs)"
check "dpkg" "" "$(dpkg -l rdmatune 2> /dev/null | grep '^[^un|+D]')"
exit $failed
