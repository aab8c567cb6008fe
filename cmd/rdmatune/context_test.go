package main

import (
	"testing"

	"github.com/rdmatune/rdmatune/internal/rdmanl"
)

func TestOtherUsers(t *testing.T) {
	qp := func(device, typ string, tid int, kernel string) rdmanl.QP {
		return rdmanl.QP{Device: device, Type: typ, Owner: rdmanl.Owner{TID: tid, Kernel: kernel}}
	}
	table := &rdmanl.Table{QPs: []rdmanl.QP{
		qp("rxe0", "GSI", 0, "ib_core"), qp("rxe0", "RC", 101, ""), qp("rxe0", "RC", 102, ""), qp("rxe0", "RC", 7, ""),
		qp("rxe0", "RC", 8, ""), qp("rxe0", "RC", 0, "nvme_rdma"), qp("rxe0", "RC", 0, ""), qp("rxe1", "RC", 101, ""),
	}}
	processes := map[int]int{101: 100, 102: 100, 7: 7, 8: 7}
	want := "1 of a process that the kernel does not name, 2 of process 100, 1 of the kernel's nvme_rdma"
	if got := otherUsers(table, "rxe0", 7, processes); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := otherUsers(table, "rxe1", 100, processes); got != "" {
		t.Errorf("only ours: %s", got)
	}
}
