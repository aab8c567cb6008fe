package procs

type Table struct{}
