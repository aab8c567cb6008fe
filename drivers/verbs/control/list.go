package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Bounds of the lists of an answer. They hold while it is decoded: an element takes a
// few bytes of JSON and hundreds of memory, so that counting afterwards is too late.
const (
	maxConns    = 16384 // connections, and outcomes of an order
	maxThreads  = 65536
	maxLanes    = 16 // two, and those of earlier profiles until their last completion
	maxSwitches = 16 // a process keeps no more
	maxShort    = 16 // losers, bands, tiers
	maxTexts    = 64 // notices, and what was not granted
	maxBins     = 256
)

// Lists of what a process says, bounded where they are decoded.
type (
	// Conns are the connections of a process.
	Conns []Conn
	// Threads are thread ids.
	Threads []int
	// Lanes are the queue pairs of a connection.
	Lanes []Lane
	// Switches are attempts to change a connection's lanes.
	Switches []Switch
	// Outcomes are what an order did, by connection.
	Outcomes []Outcome
	// Candidates are hints that could have been in force.
	Candidates []Candidate
	// Bands are ranges of message sizes.
	Bands []Band
	// Tiers are what each tier carried.
	Tiers []Tier
	// Bins are a histogram.
	Bins []Bin
	// Texts are lines for a person.
	Texts []string
)

// UnmarshalJSON decodes at most 16384 connections.
func (l *Conns) UnmarshalJSON(b []byte) error {
	return decodeList((*[]Conn)(l), b, maxConns, "connections")
}

// UnmarshalJSON decodes at most 65536 thread ids.
func (l *Threads) UnmarshalJSON(b []byte) error {
	return decodeList((*[]int)(l), b, maxThreads, "threads")
}

// UnmarshalJSON decodes at most 16 lanes.
func (l *Lanes) UnmarshalJSON(b []byte) error { return decodeList((*[]Lane)(l), b, maxLanes, "lanes") }

// UnmarshalJSON decodes at most 16 attempts.
func (l *Switches) UnmarshalJSON(b []byte) error {
	return decodeList((*[]Switch)(l), b, maxSwitches, "switches")
}

// UnmarshalJSON decodes at most 16384 outcomes.
func (l *Outcomes) UnmarshalJSON(b []byte) error {
	return decodeList((*[]Outcome)(l), b, maxConns, "outcomes")
}

// UnmarshalJSON decodes at most 16 candidates.
func (l *Candidates) UnmarshalJSON(b []byte) error {
	return decodeList((*[]Candidate)(l), b, maxShort, "losers")
}

// UnmarshalJSON decodes at most 16 bands.
func (l *Bands) UnmarshalJSON(b []byte) error { return decodeList((*[]Band)(l), b, maxShort, "bands") }

// UnmarshalJSON decodes at most 16 tiers.
func (l *Tiers) UnmarshalJSON(b []byte) error { return decodeList((*[]Tier)(l), b, maxShort, "tiers") }

// UnmarshalJSON decodes at most 256 bins.
func (l *Bins) UnmarshalJSON(b []byte) error { return decodeList((*[]Bin)(l), b, maxBins, "bins") }

// UnmarshalJSON decodes at most 64 texts.
func (l *Texts) UnmarshalJSON(b []byte) error {
	return decodeList((*[]string)(l), b, maxTexts, "texts")
}

// decodeList decodes a JSON list of at most most elements, and stops at the first one
// that is too many or that does not decode. Null is no list.
func decodeList[T any](into *[]T, b []byte, most int, what string) error {
	*into = nil
	if string(b) == "null" {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if first, err := dec.Token(); err != nil || first != json.Delim('[') {
		return errors.Join(fmt.Errorf("%s: not a list", what), err)
	}
	out := []T{}
	for dec.More() {
		if len(out) == most {
			return fmt.Errorf("more than %d %s", most, what)
		}
		var v T
		if err := dec.Decode(&v); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		out = append(out, v)
	}
	*into = out
	return nil
}
