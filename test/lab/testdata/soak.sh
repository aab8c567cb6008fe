# The soak of rdmatune reconcile. Its test does all, on the machine itself.
cd /tmp
exec soak.test -test.v -test.run '^TestSoak$' -test.timeout 0
