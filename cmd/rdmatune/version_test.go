package main

import (
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/spec"
)

// TestVersion: a build without verbs says so, in the same line.
func TestVersion(t *testing.T) {
	for built, want := range map[bool]string{
		true:  "rdmatune " + spec.Version + "\n",
		false: "rdmatune " + spec.Version + " (built without verbs: it opens no RDMA device but soft0)\n",
	} {
		if got := version(built); got != want || strings.Contains(got, "{{") {
			t.Errorf("built with verbs %v: %q, want %q", built, got, want)
		}
	}
}
