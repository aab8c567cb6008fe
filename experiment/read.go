package experiment

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const columns = "id, time, kind, workload, status, error, duration, node, device, simulated, spec_root, spec_digest, git_commit, version, detail"

func scan(row interface{ Scan(...any) error }) (e Experiment, err error) {
	var at, duration int64
	var node, detail string
	err = row.Scan(&e.ID, &at, &e.Kind, &e.Workload, &e.Status, &e.Error, &duration, &node, &e.Device, &e.Simulated,
		&e.SpecRoot, &e.SpecDigest, &e.GitCommit, &e.Version, &detail)
	if err != nil {
		return e, err
	}
	e.Time, e.Duration = time.Unix(0, at).UTC(), time.Duration(duration)
	return e, errors.Join(json.Unmarshal([]byte(node), &e.Node), json.Unmarshal([]byte(detail), &e.Detail))
}

// A Filter chooses experiments; its zero value chooses all.
type Filter struct {
	Workload string // an address that the experiment is about, or a block's name for all its instances
	Device   string
	Kind     Kind
	Hint     *int64    // bytes: that a series was measured with
	NoHint   bool      // that a series was measured without any
	Since    time.Time // not before
}

// where returns the condition and its arguments.
func (f Filter) where() (string, []any) {
	conds, args := []string{"1"}, []any{}
	and := func(cond string, arg any) {
		conds = append(conds, cond)
		args = append(args, arg)
	}
	if f.Workload != "" {
		// Addresses are listed with ", " between them, and an instance's goes on with "[".
		and(`(instr(', ' || workload || ',', ', ' || ?1 || ',') > 0 OR instr(', ' || workload, ', ' || ?1 || '[') > 0)`, f.Workload)
	}
	if f.Device != "" {
		and("device = ?"+fmt.Sprint(len(args)+1), f.Device)
	}
	if f.Kind != "" {
		and("kind = ?"+fmt.Sprint(len(args)+1), string(f.Kind))
	}
	if f.Hint != nil {
		and("EXISTS (SELECT 1 FROM series WHERE experiment = id AND hint = ?"+fmt.Sprint(len(args)+1)+")", *f.Hint)
	}
	if f.NoHint {
		conds = append(conds, "EXISTS (SELECT 1 FROM series WHERE experiment = id AND hint IS NULL)")
	}
	if !f.Since.IsZero() {
		and("time >= ?"+fmt.Sprint(len(args)+1), f.Since.UnixNano())
	}
	return strings.Join(conds, " AND "), args
}

// List returns the experiments that f chooses, newest first, with their series and
// sizes (without histograms) but without settings and switches.
func (d *DB) List(ctx context.Context, f Filter) ([]Experiment, error) {
	where, args := f.where()
	rows, err := d.sql.QueryContext(ctx, "SELECT "+columns+" FROM experiments WHERE "+where+" ORDER BY time DESC, id DESC", args...)
	if err != nil {
		return nil, fmt.Errorf("experiments: %w", err)
	}
	defer rows.Close()
	var out []Experiment
	for rows.Next() {
		e, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("experiments: %w", err)
		}
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("experiments: %w", err)
	}
	for i := range out {
		if err := d.measured(ctx, &out[i], false); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Show returns one experiment whole. An unambiguous beginning of an id is enough.
func (d *DB) Show(ctx context.Context, id string) (Experiment, error) {
	like := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(id) + "%"
	rows, err := d.sql.QueryContext(ctx, "SELECT "+columns+` FROM experiments WHERE id = ? OR id LIKE ? ESCAPE '\' ORDER BY id = ? DESC LIMIT 2`, id, like, id)
	if err != nil {
		return Experiment{}, fmt.Errorf("experiments: %w", err)
	}
	defer rows.Close()
	var found []Experiment
	for rows.Next() {
		e, err := scan(rows)
		if err != nil {
			return Experiment{}, fmt.Errorf("experiments: %w", err)
		}
		found = append(found, e)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return Experiment{}, fmt.Errorf("experiments: %w", err)
	}
	switch {
	case len(found) == 0 || id == "":
		return Experiment{}, fmt.Errorf("%w: %q", ErrNotFound, id)
	case len(found) > 1 && found[0].ID != id:
		return Experiment{}, fmt.Errorf("%q is the beginning of several experiments, such as %s and %s", id, found[0].ID, found[1].ID)
	}
	e := found[0]
	if err := d.measured(ctx, &e, true); err != nil {
		return e, err
	}
	err = d.each(ctx, "SELECT address, attr, before, value FROM settings WHERE experiment = ? ORDER BY address, attr", e.ID, func(r *sql.Rows) error {
		var s Setting
		err := r.Scan(&s.Address, &s.Attr, &s.Before, &s.Value)
		e.Settings = append(e.Settings, s)
		return err
	})
	if err != nil {
		return e, err
	}
	err = d.each(ctx, "SELECT workload, pid, connection, generation, outcome, pause, drained, held, at FROM switches WHERE experiment = ? ORDER BY rowid", e.ID, func(r *sql.Rows) error {
		var s Switch
		err := r.Scan(&s.Workload, &s.PID, &s.Connection, &s.Generation, &s.Outcome, &s.Pause, &s.Drained, &s.Held, &s.At)
		e.Switches = append(e.Switches, s)
		return err
	})
	return e, err
}

// measured reads the series and sizes of e.
func (d *DB) measured(ctx context.Context, e *Experiment, histograms bool) error {
	err := d.each(ctx, "SELECT name, hint, profile FROM series WHERE experiment = ? ORDER BY rowid", e.ID, func(r *sql.Rows) error {
		var s Series
		var profile string
		if err := r.Scan(&s.Name, &s.Hint, &profile); err != nil {
			return err
		}
		e.Series = append(e.Series, s)
		return json.Unmarshal([]byte(profile), &e.Series[len(e.Series)-1].Profile)
	})
	if err != nil {
		return err
	}
	column := "NULL"
	if histograms {
		column = "histogram"
	}
	const fields = "series, kind, size, tier, warmup, n, p50, p99, p999, max, bandwidth, lost, duplicated, reordered, corrupted, detail, "
	return d.each(ctx, "SELECT "+fields+column+" FROM results WHERE experiment = ? ORDER BY kind, size, rowid", e.ID, func(r *sql.Rows) error {
		var s Size
		var detail string
		err := r.Scan(&s.Series, &s.Kind, &s.Size, &s.Tier, &s.Warmup, &s.N, &s.P50, &s.P99, &s.P999, &s.Max, &s.Bandwidth,
			&s.Lost, &s.Duplicated, &s.Reordered, &s.Corrupted, &detail, &s.Histogram)
		if err == nil {
			err = json.Unmarshal([]byte(detail), &s.SizeDetail)
		}
		e.Sizes = append(e.Sizes, s)
		return err
	})
}

func (d *DB) each(ctx context.Context, query, id string, row func(*sql.Rows) error) error {
	rows, err := d.sql.QueryContext(ctx, query, id)
	if err != nil {
		return fmt.Errorf("experiment %s: %w", id, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return fmt.Errorf("experiment %s: %w", id, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("experiment %s: %w", id, err)
	}
	return nil
}
