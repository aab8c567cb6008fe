// Package spec reads rdmatune's language. It works in two steps: Load reads a
// file or a directory and finds everything that is wrong on any node, without
// looking at one; Spec.Resolve evaluates the loaded spec against a node's facts
// and yields what each workload wants, setting by setting, with the place in the
// source that wants it.
//
// The grammar is the table in schema.go; the functions are in funcs.go.
package spec
