// Package experiment keeps the record of what was done to a node and what was
// measured on it, in an embedded SQL database in the state directory. Every apply
// that changes something and every bench writes one experiment.
package experiment
