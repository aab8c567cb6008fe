package experiment

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// fileName is the database's file in the state directory.
const fileName = "experiments.db"

// migrations bring a database from the version that is the index to the next one.
// They are only ever appended to.
var migrations = []string{
	`CREATE TABLE experiments (
		id TEXT PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, workload TEXT NOT NULL,
		status TEXT NOT NULL, error TEXT NOT NULL, duration INTEGER NOT NULL, node TEXT NOT NULL,
		device TEXT NOT NULL, simulated INTEGER NOT NULL, spec_root TEXT NOT NULL, spec_digest TEXT NOT NULL,
		git_commit TEXT NOT NULL, version TEXT NOT NULL
	) STRICT;
	CREATE INDEX experiments_time ON experiments (time);
	CREATE TABLE settings (
		experiment TEXT NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,
		address TEXT NOT NULL, attr TEXT NOT NULL, before TEXT NOT NULL, value TEXT NOT NULL,
		PRIMARY KEY (experiment, address, attr)
	) STRICT, WITHOUT ROWID;
	CREATE TABLE sizes (
		experiment TEXT NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,
		size INTEGER NOT NULL, warmup INTEGER NOT NULL, n INTEGER NOT NULL,
		p50 INTEGER NOT NULL, p99 INTEGER NOT NULL, max INTEGER NOT NULL,
		lost INTEGER NOT NULL, duplicated INTEGER NOT NULL, reordered INTEGER NOT NULL, corrupted INTEGER NOT NULL,
		histogram BLOB,
		PRIMARY KEY (experiment, size)
	) STRICT, WITHOUT ROWID;
	CREATE TABLE switches (
		experiment TEXT NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,
		workload TEXT NOT NULL, pid INTEGER NOT NULL, connection TEXT NOT NULL, generation INTEGER NOT NULL,
		outcome TEXT NOT NULL, pause INTEGER NOT NULL, drained INTEGER NOT NULL, held INTEGER NOT NULL
	) STRICT;`,
}

// A DB is an open database. It is safe for use by several goroutines, and several
// processes may have the same database open.
type DB struct{ sql *sql.DB }

// ErrNotFound is returned by Show for an unknown experiment.
var ErrNotFound = errors.New("no such experiment")

// Open opens the database of a state directory for writing, and creates or
// migrates it.
func Open(ctx context.Context, dir string) (*DB, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("experiments: %w", err)
	}
	db, err := open(ctx, dir, "rwc")
	if err != nil {
		return nil, err
	}
	if err := db.migrate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("experiments: %w", err), db.Close())
	}
	return db, nil
}

// OpenReadOnly opens the database for reading; nil and no error mean that there is
// none yet.
func OpenReadOnly(ctx context.Context, dir string) (*DB, error) {
	if _, err := os.Stat(filepath.Join(dir, fileName)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	db, err := open(ctx, dir, "ro")
	if err != nil {
		return nil, err
	}
	v, err := db.version(ctx)
	if err == nil && v > len(migrations) {
		err = tooNew(v)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("experiments: %w", err), db.Close())
	}
	return db, nil
}

func open(ctx context.Context, dir, mode string) (*DB, error) {
	path, err := filepath.Abs(filepath.Join(dir, fileName))
	if err != nil {
		return nil, fmt.Errorf("experiments: %w", err)
	}
	q := url.Values{"mode": {mode}, "_pragma": {"busy_timeout(10000)", "foreign_keys(1)", "synchronous(FULL)"}, "_txlock": {"immediate"}}
	if mode != "ro" {
		q.Add("_pragma", "journal_mode(WAL)")
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("experiments: %w", err)
	}
	db.SetMaxOpenConns(1)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("experiments: %s: %w", path, err), db.Close())
	}
	return &DB{db}, nil
}

// Close closes the database.
func (d *DB) Close() error { return d.sql.Close() }

func (d *DB) version(ctx context.Context) (v int, err error) {
	err = d.sql.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
	return v, err
}

func tooNew(v int) error {
	return fmt.Errorf("the database has schema version %d; this rdmatune knows up to %d", v, len(migrations))
}

// migrate brings the schema to this version; two processes that start together
// wait for each other.
func (d *DB) migrate(ctx context.Context) error {
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var v int
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
		return err
	}
	if v > len(migrations) {
		return tooNew(v)
	}
	if v == len(migrations) {
		return nil
	}
	for ; v < len(migrations); v++ {
		if _, err := tx.ExecContext(ctx, migrations[v]); err != nil {
			return fmt.Errorf("migrate to version %d: %w", v+1, err)
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", v)); err != nil {
		return err
	}
	return tx.Commit()
}

// Begin records that an apply or a destroy has started; its status becomes Running.
// The caller holds the node's lock, so one that is still running was interrupted.
func (d *DB) Begin(ctx context.Context, e Experiment) error {
	if _, err := d.sql.ExecContext(ctx, "UPDATE experiments SET status = ? WHERE status = ?", string(Interrupted), string(Running)); err != nil {
		return fmt.Errorf("experiment %s: %w", e.ID, err)
	}
	e.Status = Running
	return d.write(ctx, e)
}

// Finish replaces the record of e.ID with all of e.
func (d *DB) Finish(ctx context.Context, e Experiment) error { return d.write(ctx, e) }

func (d *DB) write(ctx context.Context, e Experiment) error {
	node, err := json.Marshal(e.Node)
	if err != nil {
		return fmt.Errorf("experiment %s: %w", e.ID, err)
	}
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("experiment %s: %w", e.ID, err)
	}
	defer tx.Rollback()
	exec := func(query string, args ...any) {
		if err == nil {
			_, err = tx.ExecContext(ctx, query, args...)
		}
	}
	exec("DELETE FROM experiments WHERE id = ?", e.ID)
	exec("INSERT INTO experiments VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)", e.ID, e.Time.UnixNano(), string(e.Kind), e.Workload,
		string(e.Status), e.Error, int64(e.Duration), string(node), e.Device, e.Simulated, e.SpecRoot, e.SpecDigest, e.GitCommit, e.Version)
	for _, s := range e.Settings {
		exec("INSERT OR REPLACE INTO settings VALUES (?,?,?,?,?)", e.ID, s.Address, s.Attr, s.Before, s.Value)
	}
	for _, s := range e.Sizes {
		exec("INSERT OR REPLACE INTO sizes VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", e.ID, s.Size, s.Warmup, s.N, s.P50, s.P99, s.Max,
			s.Lost, s.Duplicated, s.Reordered, s.Corrupted, s.Histogram)
	}
	for _, s := range e.Switches {
		exec("INSERT INTO switches VALUES (?,?,?,?,?,?,?,?,?)", e.ID, s.Workload, s.PID, s.Connection, int64(s.Generation),
			s.Outcome, int64(s.Pause), s.Drained, s.Held)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("experiment %s: %w", e.ID, err)
	}
	return nil
}

const columns = "id, time, kind, workload, status, error, duration, node, device, simulated, spec_root, spec_digest, git_commit, version"

func scan(row interface{ Scan(...any) error }) (e Experiment, err error) {
	var at, duration int64
	var node string
	err = row.Scan(&e.ID, &at, &e.Kind, &e.Workload, &e.Status, &e.Error, &duration, &node, &e.Device, &e.Simulated,
		&e.SpecRoot, &e.SpecDigest, &e.GitCommit, &e.Version)
	if err != nil {
		return e, err
	}
	e.Time, e.Duration = time.Unix(0, at).UTC(), time.Duration(duration)
	return e, json.Unmarshal([]byte(node), &e.Node)
}

// List returns all experiments, newest first, with their sizes (without
// histograms) but without settings and switches.
func (d *DB) List(ctx context.Context) ([]Experiment, error) {
	rows, err := d.sql.QueryContext(ctx, "SELECT "+columns+" FROM experiments ORDER BY time DESC, id DESC")
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
		if out[i].Sizes, err = d.sizes(ctx, out[i].ID, false); err != nil {
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
	if e.Sizes, err = d.sizes(ctx, e.ID, true); err != nil {
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
	err = d.each(ctx, "SELECT workload, pid, connection, generation, outcome, pause, drained, held FROM switches WHERE experiment = ? ORDER BY rowid", e.ID, func(r *sql.Rows) error {
		var s Switch
		err := r.Scan(&s.Workload, &s.PID, &s.Connection, &s.Generation, &s.Outcome, &s.Pause, &s.Drained, &s.Held)
		e.Switches = append(e.Switches, s)
		return err
	})
	return e, err
}

func (d *DB) sizes(ctx context.Context, id string, histograms bool) ([]Size, error) {
	column := "NULL"
	if histograms {
		column = "histogram"
	}
	var out []Size
	err := d.each(ctx, "SELECT size, warmup, n, p50, p99, max, lost, duplicated, reordered, corrupted, "+column+" FROM sizes WHERE experiment = ? ORDER BY size", id, func(r *sql.Rows) error {
		var s Size
		err := r.Scan(&s.Size, &s.Warmup, &s.N, &s.P50, &s.P99, &s.Max, &s.Lost, &s.Duplicated, &s.Reordered, &s.Corrupted, &s.Histogram)
		out = append(out, s)
		return err
	})
	return out, err
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
