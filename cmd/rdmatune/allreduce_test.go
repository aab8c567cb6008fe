package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/measure"
)

// cell is what a rank measured: n all-reduces around us microseconds.
func cell(t *testing.T, size int64, matched bool, n, us int) ringCell {
	t.Helper()
	h := measure.New()
	for i := range n {
		h.Record(time.Duration(us*1000 + i%7))
	}
	b, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return ringCell{Size: size, Matched: matched, Histogram: b}
}

// TestRingReport: nothing is concluded from one hint alone, and what was not measured is
// null.
func TestRingReport(t *testing.T) {
	job := ringJob{Ranks: 2, Sizes: []int64{1024, 2048}}
	for name, tc := range map[string]struct {
		cells []ringCell
		loses string // "": no conclusion
		nulls int
	}{
		"both":            {[]ringCell{cell(t, 1024, false, 50, 9), cell(t, 1024, true, 50, 9), cell(t, 2048, false, 50, 9), cell(t, 2048, true, 50, 30)}, "from 2 KiB on, the low-latency path loses", 0},
		"no difference":   {[]ringCell{cell(t, 1024, false, 50, 9), cell(t, 1024, true, 50, 9)}, "up to 1 KiB, the low-latency path is not shown to lose", 0},
		"hint 0 alone":    {[]ringCell{cell(t, 1024, false, 1568, 9)}, "", 4},
		"matched alone":   {[]ringCell{cell(t, 1024, true, 1568, 9)}, "", 4},
		"one of each":     {[]ringCell{cell(t, 1024, false, 1, 9), cell(t, 1024, true, 1, 90)}, "", 1},
		"a size has both": {[]ringCell{cell(t, 1024, false, 50, 9), cell(t, 1024, true, 50, 30), cell(t, 2048, false, 50, 9)}, "from 1 KiB on, the low-latency path loses", 3},
	} {
		r := newRingReport(job, tc.cells)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if r.Loses != nil {
			got = *r.Loses
		}
		if nulls := strings.Count(string(b), "null"); got != tc.loses || nulls != tc.nulls || strings.Contains(string(b), `"n":0`) {
			t.Errorf("%s: concluded %q, want %q; %d nulls in %s", name, got, tc.loses, nulls, b)
		}
	}
}

// TestRingTurns: turns are short whatever the count, so that an interrupt leaves
// something of both hints.
func TestRingTurns(t *testing.T) {
	for _, count := range []int{1, 2, 9, 10, 199, 200, 201, 5000, 1_000_000} {
		j, err := (&allreduceFlags{ranks: 2, sizes: "1KiB", count: count}).job()
		if err != nil {
			t.Fatal(err)
		}
		if turn := (count + j.Rounds - 1) / j.Rounds; turn > maxTurn || j.Rounds < min(count, minTurns) {
			t.Errorf("%d all-reduces in %d turns of up to %d", count, j.Rounds, turn)
		}
	}
}

// TestSilentRank: what the others measured counts when a rank says nothing after an
// interrupt, and one that ends before it, or by itself after it, is an error.
func TestSilentRank(t *testing.T) {
	for name, tc := range map[string]struct {
		told, killed bool
		last         string // of rank 1, before it ends
		says         string
	}{
		"stopped":         {true, true, "", ""},
		"lost the others": {true, false, `{"Error":"receive: EOF"}`, ""},
		"wrong sum":       {true, true, `{"Error":"wrong sum","Wrong":true}`, "rank 1: wrong sum"},
		"ended by itself": {true, false, "", "rank 1: it ended early: EOF"},
		"not interrupted": {false, false, "", "rank 1: it ended early: EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, tell := context.WithCancel(t.Context())
			defer tell()
			alive, kill := context.WithCancel(t.Context())
			defer kill()
			silent, end := io.Pipe()
			line, err := json.Marshal(ringLine{Cells: []ringCell{cell(t, 1024, false, 5, 9)}})
			if err != nil {
				t.Fatal(err)
			}
			ranks := []*ringProcess{{out: json.NewDecoder(bytes.NewReader(line))}, {out: json.NewDecoder(silent)}}
			if tc.told {
				tell()
			}
			if tc.killed {
				kill()
			}
			go func() {
				io.WriteString(end, tc.last)
				end.Close()
			}()
			cells, err := collect(ctx, alive, ranks, kill)
			if len(cells) != 1 || (err == nil) != (tc.says == "") || err != nil && err.Error() != tc.says {
				t.Errorf("%d cells, %v, want %q", len(cells), err, tc.says)
			}
			if !tc.told && alive.Err() == nil {
				t.Error("the others are left waiting for it")
			}
		})
	}
}
