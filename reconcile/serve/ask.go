package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/peercred"
	"github.com/rdmatune/rdmatune/reconcile"
)

// ErrNoDaemon: nobody listens at the socket.
var ErrNoDaemon = errors.New("no daemon runs")

// maxStatus bounds a status in bytes: a thousand workloads, and as many contested settings.
const maxStatus = 8 << 20

// askTime bounds the wait for an answer.
const askTime = 10 * time.Second

// Ask returns the status of the daemon that listens at a Unix socket. The error wraps
// ErrNoDaemon when there is none. A socket that is neither root's nor our own user's is not
// asked.
func Ask(ctx context.Context, path string) (*reconcile.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader,
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return dialDaemon(path) },
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/status", nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("%w (nobody listens at %s)", ErrNoDaemon, path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%s: %w: the daemon answers root alone", path, unix.EACCES)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxStatus+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case len(b) > maxStatus:
		return nil, fmt.Errorf("%s: the status has more than %d bytes", path, maxStatus)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: answered %s", path, res.Status)
	}
	return parse(b)
}

// parse reads a status that a daemon of this or another version wrote.
func parse(b []byte) (*reconcile.Status, error) {
	var version struct {
		Format string `json:"format_version"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	theirs, _, _ := strings.Cut(version.Format, ".")
	ours, _, _ := strings.Cut(reconcile.FormatVersion, ".")
	if theirs != ours {
		return nil, fmt.Errorf("status: the daemon writes version %.20q, this program reads %s: they are of different versions", version.Format, reconcile.FormatVersion)
	}
	var s reconcile.Status
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return &s, nil
}

// dialDaemon connects and checks who listens.
func dialDaemon(path string) (net.Conn, error) {
	conn, err := dialUnix(path)
	if err != nil {
		return nil, err
	}
	peer, err := peercred.Of(conn)
	if err == nil && peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		err = fmt.Errorf("user %d listens there, neither root nor you", peer.Uid)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
