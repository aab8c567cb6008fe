# The tests of package reconcile/watch, as root on a machine of their own: every source
# must work, and none of them may be skipped.
set -eu
cd /tmp
RDMATUNE_WATCH_LAB=1 watch.test -test.v
