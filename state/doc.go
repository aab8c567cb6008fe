// Package state keeps what rdmatune did to one node: the originals of all it
// changed, the values it wrote, and the generation of each workload. It consists
// of a document that is replaced atomically, a journal that outlives a crash in
// the middle of an apply, and the node's lock.
package state
