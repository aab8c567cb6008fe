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
	"time"

	"modernc.org/sqlite" // also the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/rdmatune/rdmatune/internal/smallfile"
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

	`ALTER TABLE experiments ADD COLUMN detail TEXT NOT NULL DEFAULT '{}';
	ALTER TABLE switches ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
	CREATE TABLE series (
		experiment TEXT NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,
		name TEXT NOT NULL, hint INTEGER, profile TEXT NOT NULL,
		PRIMARY KEY (experiment, name)
	) STRICT;
	CREATE TABLE results (
		experiment TEXT NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,
		series TEXT NOT NULL, kind TEXT NOT NULL, size INTEGER NOT NULL, tier TEXT NOT NULL,
		warmup INTEGER NOT NULL, n INTEGER NOT NULL,
		p50 INTEGER NOT NULL, p99 INTEGER NOT NULL, p999 INTEGER NOT NULL, max INTEGER NOT NULL, bandwidth INTEGER NOT NULL,
		lost INTEGER NOT NULL, duplicated INTEGER NOT NULL, reordered INTEGER NOT NULL, corrupted INTEGER NOT NULL,
		histogram BLOB, detail TEXT NOT NULL,
		PRIMARY KEY (experiment, series, kind, size)
	) STRICT;
	INSERT INTO results SELECT experiment, '', 'round_trip', size, '', warmup, n, p50, p99, 0, max, 0,
		lost, duplicated, reordered, corrupted, histogram, '{}' FROM sizes;
	DROP TABLE sizes;`,
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
// none yet. Where nothing can be written beside it, it is read as it is now.
func OpenReadOnly(ctx context.Context, dir string) (*DB, error) {
	// The library says only that it cannot open the file, not why.
	f, err := smallfile.Open(filepath.Join(dir, fileName), smallfile.Any)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("experiments: %w", err)
	}
	f.Close()
	db, err := openForReading(ctx, dir)
	if needsWriting(err) {
		var frozenErr error
		if db, frozenErr = openFrozen(ctx, dir); frozenErr != nil {
			return nil, fmt.Errorf("%w; nor in memory: %w", err, frozenErr)
		}
		return db, nil
	}
	return db, err
}

// openForReading opens a database of this version, or brings one that an older rdmatune
// wrote up to date, if it may write.
func openForReading(ctx context.Context, dir string) (*DB, error) {
	db, err := open(ctx, dir, "ro")
	if err != nil {
		return nil, err
	}
	v, err := db.version(ctx)
	switch {
	case err == nil && v > len(migrations):
		err = tooNew(v)
	case err == nil && v < len(migrations):
		if err := db.Close(); err != nil {
			return nil, fmt.Errorf("experiments: %w", err)
		}
		return Open(ctx, dir)
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
	q := url.Values{"mode": {mode}, "_pragma": {"busy_timeout(10000)", "foreign_keys(1)", "synchronous(FULL)", "temp_store(MEMORY)"}, "_txlock": {"immediate"}}
	if mode != "ro" {
		q.Add("_pragma", "journal_mode(WAL)")
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("experiments: %w", err)
	}
	db.SetMaxOpenConns(1)
	if err := connect(ctx, db); err != nil {
		return nil, errors.Join(fmt.Errorf("experiments: %s: %w", path, err), db.Close())
	}
	return &DB{db}, nil
}

// busyTime bounds the wait for another process, as busy_timeout does within a connection.
const busyTime = 10 * time.Second

// connect makes the first connection. Where several make a new database at one time, the
// change to a write-ahead log finds it locked, and SQLite does not wait for that one.
func connect(ctx context.Context, db *sql.DB) error {
	for deadline := time.Now().Add(busyTime); ; {
		err := db.PingContext(ctx)
		e, ok := errors.AsType[*sqlite.Error](err)
		if !ok || e.Code()&0xff != sqlite3.SQLITE_BUSY || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
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
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("experiment %s: %w", e.ID, err)
	}
	defer tx.Rollback()
	if err = put(ctx, tx, e); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("experiment %s: %w", e.ID, err)
	}
	return nil
}

// put replaces the rows of e.ID with those of e.
func put(ctx context.Context, tx *sql.Tx, e Experiment) error {
	var err error
	exec := func(query string, args ...any) {
		if err == nil {
			_, err = tx.ExecContext(ctx, query, args...)
		}
	}
	exec("DELETE FROM experiments WHERE id = ?", e.ID)
	exec("INSERT INTO experiments VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", e.ID, e.Time.UnixNano(), string(e.Kind), e.Workload,
		string(e.Status), e.Error, int64(e.Duration), document(e.Node), e.Device, e.Simulated, e.SpecRoot, e.SpecDigest, e.GitCommit,
		e.Version, document(e.Detail))
	for _, s := range e.Settings {
		exec("INSERT OR REPLACE INTO settings VALUES (?,?,?,?,?)", e.ID, s.Address, s.Attr, s.Before, s.Value)
	}
	for _, s := range e.Series {
		exec("INSERT OR REPLACE INTO series VALUES (?,?,?,?)", e.ID, s.Name, s.Hint, document(s.Profile))
	}
	for _, s := range e.Sizes {
		exec("INSERT OR REPLACE INTO results VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", e.ID, s.Series, s.Kind, s.Size, s.Tier,
			s.Warmup, s.N, s.P50, s.P99, s.P999, s.Max, s.Bandwidth, s.Lost, s.Duplicated, s.Reordered, s.Corrupted,
			s.Histogram, document(s.SizeDetail))
	}
	for _, s := range e.Switches {
		exec("INSERT INTO switches VALUES (?,?,?,?,?,?,?,?,?,?)", e.ID, s.Workload, s.PID, s.Connection, int64(s.Generation),
			s.Outcome, int64(s.Pause), s.Drained, s.Held, int64(s.At))
	}
	return err
}

// document writes v, which has nothing that JSON cannot hold, as a column.
func document(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "{}"
	}
	return string(b)
}
