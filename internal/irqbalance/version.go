package irqbalance

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
)

// A Version is the daemon's, as in 1.9.2; the zero Version is not known.
type Version [3]int

// What the versions can do; see the package's comment.
var (
	readsBack   = Version{1, 7, 0} // "setup" is safe
	longCommand = Version{1, 9, 5} // commands of up to 16383 bytes
)

// AtLeast reports whether v is known and not older than w.
func (v Version) AtLeast(w Version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] > w[i]
		}
	}
	return true
}

// String returns v with dots, "" when it is not known.
func (v Version) String() string {
	if v == (Version{}) {
		return ""
	}
	parts := make([]string, len(v))
	for i, n := range v {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ".")
}

// commandMax is the longest command in bytes that v reads whole, its NUL included.
func (v Version) commandMax() int {
	if v.AtLeast(longCommand) {
		return 16384 - 1
	}
	return 500 - 1
}

// banner is what stands before the version in the daemon's program: --version prints it.
const banner = "irqbalance version "

// maxProgram bounds what is searched of a program. Debian's is 60 KB.
const maxProgram = 8 << 20

// programVersion looks for the version in the program file at path: running it to ask
// would run it as root, and outside of its container it might not even start.
func programVersion(path string) Version {
	f, err := os.Open(path)
	if err != nil {
		return Version{}
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProgram))
	if err != nil {
		return Version{}
	}
	for {
		_, after, found := bytes.Cut(b, []byte(banner))
		if !found {
			return Version{}
		}
		if v, ok := parseVersion(string(after[:min(len(after), 20)])); ok {
			return v
		}
		b = after
	}
}

// parseVersion reads the numbers with which text begins: "1.9.2\n...".
func parseVersion(text string) (v Version, ok bool) {
	end := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(text)
	}
	parts := strings.Split(text[:end], ".")
	if len(parts) < 2 || len(parts) > 3 {
		return Version{}, false
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return Version{}, false
		}
		v[i] = int(n)
	}
	return v, v != Version{}
}
