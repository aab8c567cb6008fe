// Package apply carries a plan out: it journals the originals, lets the drivers
// write and read back, rolls a workload back when one of its changes fails, and
// commits the state. It follows the plan's changes alone and never sees the spec.
package apply
