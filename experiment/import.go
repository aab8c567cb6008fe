package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rdmatune/rdmatune/measure"
)

// Limits of what Import takes.
const (
	MaxImport      = 256 << 20 // bytes of an export
	maxExperiments = 100_000
	maxRows        = 10_000   // settings, series, sizes or switches of one experiment
	maxText        = 4096     // bytes of a name or value
	maxError       = 64 << 10 // bytes of an error, which may have several lines
)

// idPattern is what NewID makes.
var idPattern = regexp.MustCompile(`^[0-9]{8}-[0-9]{6}-[0-9a-f]{4}$`)

// Import adds the experiments of an export, under origin, and returns how many were
// new. Those whose id is there already are left as they are. Everything is checked
// before anything is written, and all is written or nothing.
func (d *DB) Import(ctx context.Context, r io.Reader, origin string) (added, known int, err error) {
	list, err := readExport(r)
	if err != nil {
		return 0, 0, fmt.Errorf("import: %w", err)
	}
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return 0, 0, fmt.Errorf("import: %w", err)
	}
	defer tx.Rollback()
	for _, e := range list {
		var there int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM experiments WHERE id = ?", e.ID).Scan(&there); err != nil {
			return 0, 0, fmt.Errorf("import: %w", err)
		}
		if there > 0 {
			known++
			continue
		}
		if e.Origin == "" {
			e.Origin = origin
		}
		if err := put(ctx, tx, e); err != nil {
			return 0, 0, fmt.Errorf("import: experiment %s: %w", e.ID, err)
		}
		added++
	}
	if err := tx.Commit(); err != nil {
		return 0, 0, fmt.Errorf("import: %w", err)
	}
	return added, known, nil
}

// readExport reads and checks what WriteJSON wrote somewhere.
func readExport(r io.Reader) ([]Experiment, error) {
	limited := &io.LimitedReader{R: r, N: MaxImport + 1}
	dec := json.NewDecoder(limited)
	var a archive
	if err := dec.Decode(&a); err != nil {
		if limited.N <= 0 {
			return nil, fmt.Errorf("the export has more than %d bytes", MaxImport)
		}
		return nil, fmt.Errorf("not an export of experiments: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the export's end")
	}
	if a.FormatVersion == "" {
		return nil, errors.New("not an export of experiments: it has no format_version")
	}
	if major, _, _ := strings.Cut(a.FormatVersion, "."); major != "1" {
		return nil, fmt.Errorf("format version %.20q; this rdmatune reads 1.x", a.FormatVersion)
	}
	if len(a.Experiments) > maxExperiments {
		return nil, fmt.Errorf("%d experiments, more than %d", len(a.Experiments), maxExperiments)
	}
	seen := map[string]bool{}
	for i, e := range a.Experiments {
		if !idPattern.MatchString(e.ID) || seen[e.ID] {
			return nil, fmt.Errorf("experiment number %d: id %.40q is malformed or there twice", i+1, e.ID)
		}
		seen[e.ID] = true
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("experiment %s: %w", e.ID, err)
		}
		if e.Status == Running {
			a.Experiments[i].Status = Interrupted // elsewhere: its end will never be told here
		}
	}
	return a.Experiments, nil
}

// check holds an experiment from elsewhere to what one of this node's can be.
func (e Experiment) check() error {
	if !slices.Contains(Kinds, e.Kind) {
		return fmt.Errorf("kind %.20q", e.Kind)
	}
	switch e.Status {
	case Running, Done, Failed, RolledBack, Interrupted:
	default:
		return fmt.Errorf("status %.20q", e.Status)
	}
	if y := e.Time.Year(); y < 2000 || y > 2200 || e.Duration < 0 || e.Duration > 10*365*24*time.Hour {
		return fmt.Errorf("time %s and duration %s", e.Time, e.Duration)
	}
	if max(len(e.Settings), len(e.Series), len(e.Sizes), len(e.Switches), len(e.Explain), len(e.Observed), len(e.Guards), len(e.Effects), len(e.Tried), len(e.Detail.Notes)) > maxRows {
		return fmt.Errorf("more than %d settings, series, sizes or switches", maxRows)
	}
	if err := e.checkTexts(); err != nil {
		return err
	}
	for _, w := range e.Switches {
		if w.Generation > math.MaxInt64 || w.PID < 0 || min(int64(w.At), int64(w.Pause), w.Drained, w.Held) < 0 {
			return errors.New("a switch with a number that is out of range")
		}
	}
	names := map[string]bool{"": len(e.Series) == 0}
	for _, s := range e.Series {
		names[s.Name] = true
	}
	for _, z := range e.Sizes {
		if err := z.check(names); err != nil {
			return fmt.Errorf("size %d: %w", z.Size, err)
		}
	}
	return nil
}

// checkTexts holds every text of an experiment to what can be shown: an error may have
// several lines.
func (e Experiment) checkTexts() error {
	one := []string{
		e.Workload, e.Device, e.Version, e.SpecRoot, e.SpecDigest, e.GitCommit, e.Origin, e.Node.Ref, e.Node.Hostname,
		e.Node.Kernel, e.Node.BootID, e.Node.Virtualised, e.Node.Driver, e.Node.Firmware,
	}
	add := func(texts ...string) { one = append(one, texts...) }
	for _, m := range []map[string]string{e.Explain, e.Observed} {
		for k, v := range m {
			add(k, v)
		}
	}
	for _, s := range e.Settings {
		add(s.Address, s.Attr, s.Before, s.Value)
	}
	for _, t := range e.Tried {
		add(t.Address, t.Attr, t.Value)
	}
	for _, s := range e.Series {
		add(s.Name)
		for k, v := range s.Profile {
			add(k, v)
		}
	}
	for _, z := range e.Sizes {
		add(z.Tier)
	}
	for _, w := range e.Switches {
		add(w.Workload, w.Connection, w.Outcome)
	}
	for _, g := range e.Guards {
		add(g.Workload, g.Name, g.Verdict, g.Text)
	}
	for _, f := range e.Effects {
		add(f.Workload, f.Step, f.Device, f.Firmware, f.Text)
	}
	add(e.Detail.Notes...)
	for _, t := range one {
		if err := checkText(t, maxText, false); err != nil {
			return err
		}
	}
	return checkText(e.Error, maxError, true)
}

// checkText refuses what is too long, and what a terminal would act on.
func checkText(t string, most int, lines bool) error {
	if len(t) > most || !utf8.ValidString(t) {
		return fmt.Errorf("a text of %d bytes that is too long or not text", len(t))
	}
	for _, r := range t {
		if !strconv.IsPrint(r) && !(lines && (r == '\n' || r == '\t')) {
			return fmt.Errorf("a text with the unprintable character %U", r)
		}
	}
	return nil
}

func (z Size) check(series map[string]bool) error {
	switch {
	case !slices.Contains([]string{RoundTrip, Stream, AllReduce, Completion}, z.Kind):
		return fmt.Errorf("kind %.20q", z.Kind)
	case !series[z.Series]:
		return fmt.Errorf("series %.40q is not declared", z.Series)
	case min(z.Size, z.Warmup, z.N, z.P50, z.P99, z.P999, z.Max, z.Bandwidth, z.Lost, z.Duplicated, z.Reordered, z.Corrupted) < 0:
		return errors.New("a negative number")
	case len(z.Worst) > measure.WorstKept || len(z.Timeline) > maxRows:
		return errors.New("too many samples or points")
	}
	if len(z.Histogram) == 0 {
		return nil
	}
	h, err := measure.Decode(z.Histogram)
	if err == nil && h.N() != z.N {
		err = fmt.Errorf("its histogram has %d samples, not %d", h.N(), z.N)
	}
	return err
}

// Remove deletes experiments by their whole ids and returns how many there were.
func (d *DB) Remove(ctx context.Context, ids ...string) (int, error) {
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("remove: %w", err)
	}
	defer tx.Rollback()
	total := int64(0)
	for _, id := range ids {
		res, err := tx.ExecContext(ctx, "DELETE FROM experiments WHERE id = ? AND status <> ?", id, string(Running))
		if err != nil {
			return 0, fmt.Errorf("remove %s: %w", id, err)
		}
		n, err := res.RowsAffected()
		if err != nil {
			return 0, fmt.Errorf("remove %s: %w", id, err)
		}
		total += n
	}
	return int(total), tx.Commit()
}
