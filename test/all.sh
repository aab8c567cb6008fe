#!/bin/sh
# Passes all tests on a Debian machine with Go: formatting, vet, staticcheck, the Go
# tests with the race detector, a build without cgo, and the VM lab, in which
# rdmatune tunes a real kernel and switches real queue pairs. As root it installs
# the Debian packages that are missing, and says which; otherwise it says what to
# install. It changes no setting of the machine.
set -eu
cd "$(dirname "$0")/.."

step() { echo; echo "== $*"; }

step "Debian packages for the Go tests"
missing=''
for p in gcc libc6-dev libibverbs-dev git openmpi-bin ucx-utils chromium \
	gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
if [ -n "$missing" ]; then
	if [ "$(id -u)" != 0 ]; then
		echo "missing:$missing; run as root: apt-get install --no-install-recommends$missing" >&2
		exit 1
	fi
	echo "installing:$missing"
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi
echo "all there"

step "gofmt"
unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
	echo "not formatted: $unformatted" >&2
	exit 1
fi

step "go vet, with cgo and without"
go vet ./...
CGO_ENABLED=0 go vet ./...

step "staticcheck"
go tool -modfile=tools/go.mod staticcheck ./...

step "go.mod is tidy"
go mod tidy -diff

step "Go tests, with the race detector"
go test -race -timeout 30m ./...

step "reports in a real browser"
RDMATUNE_BROWSER=1 go test -count=1 ./experiment/report

step "without cgo: a binary that is built without verbs"
CGO_ENABLED=0 go test ./drivers/verbs/... ./cmd/...

step "binaries and packages, built twice"
RDMATUNE_PACKAGES=1 go test -v -count=1 -timeout 40m -run 'TestBuild$' ./packaging

step "the VM lab"
RDMATUNE_LAB=1 go test -v -count=1 -timeout 80m ./test/lab/...

echo
echo "All tests passed."
