package audit

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// A place is where a process is: what its configuration files depend on.
type place struct {
	env    map[string]string
	home   string // of the user's entry in the password file, "" when not known
	cwd    string // "" when not known
	module string // path of the library's mapped shared object, "" when not known
}

// A file is one configuration file of a library.
type file struct {
	path  string
	level string // "user file", "system file", "job file"
	read  func(text string) map[string]string
	// alters says what else is to be known of it; said only where it gives a value.
	alters string
}

// home is $HOME, which most libraries ask.
func (p place) userHome() string { return p.env["HOME"] }

// ucxFiles: ./ucx.conf, $UCX_CONFIG_DIR, $HOME, beside the library, the system's.
func ucxFiles(p place) []file {
	var out []file
	add := func(dir, level string) {
		if path.IsAbs(dir) {
			out = append(out, file{path: path.Join(dir, "ucx.conf"), level: level, read: readINI})
		}
	}
	add(p.cwd, "job file")
	add(p.env["UCX_CONFIG_DIR"], "user file")
	add(p.userHome(), "user file")
	if p.module != "" {
		add(path.Join(path.Dir(p.module), "../etc/ucx"), "system file")
	}
	add("/etc/ucx", "system file")
	return dedup(out)
}

// uccFiles: the file that UCC_CONFIG_FILE names, alone; else $HOME, else beside the
// library.
func uccFiles(p place) []file {
	named, set := p.env["UCC_CONFIG_FILE"]
	switch {
	case set && named == "":
		return nil
	case set && !strings.EqualFold(named, "auto"):
		return []file{{path: absolute(p, named), level: "user file", read: readINI}}
	}
	var out []file
	if h := p.userHome(); path.IsAbs(h) {
		out = append(out, file{path: path.Join(h, "ucc.conf"), level: "user file", read: readINI})
	}
	if p.module != "" {
		out = append(out, file{path: path.Join(path.Dir(p.module), "../share/ucc.conf"), level: "system file", read: readINI})
	}
	return dedup(out)
}

// ncclFiles: NCCL_CONF_FILE instead of the user's file, then the system's. The home is
// that of the password file, not $HOME.
func ncclFiles(p place) []file {
	var out []file
	if named := p.env["NCCL_CONF_FILE"]; named != "" {
		out = append(out, file{path: absolute(p, named), level: "user file", read: readNCCL})
	} else if path.IsAbs(p.home) {
		out = append(out, file{path: path.Join(p.home, ".nccl.conf"), level: "user file", read: readNCCL})
	}
	return append(out, file{path: "/etc/nccl.conf", level: "system file", read: readNCCL})
}

// ompiFiles: the user's file, then that of the installation.
func ompiFiles(p place) []file {
	var out []file
	if h := p.userHome(); path.IsAbs(h) {
		out = append(out, file{path: path.Join(h, ".openmpi/mca-params.conf"), level: "user file", read: readMCA})
	}
	prefix := p.env["OPAL_PREFIX"]
	if prefix == "" && p.module != "" {
		prefix = path.Join(path.Dir(p.module), "..")
	}
	if path.IsAbs(prefix) && prefix != "/usr" {
		out = append(out, file{path: path.Join(prefix, "etc/openmpi-mca-params.conf"), level: "system file", read: readMCA})
	}
	out = append(out, file{path: "/etc/openmpi/openmpi-mca-params.conf", level: "system file", read: readMCA})
	return dedup(out)
}

// fabricFiles: one file of the system.
func fabricFiles(p place) []file {
	var out []file
	if p.module != "" && !strings.HasPrefix(p.module, "/usr/lib") && !strings.HasPrefix(p.module, "/lib") {
		out = append(out, file{path: path.Join(path.Dir(p.module), "../etc/libfabric.conf"), level: "system file", read: readFabric})
	}
	return append(out, file{path: "/etc/libfabric.conf", level: "system file", read: readFabric})
}

// nvshmemFiles: a later file wins over an earlier one, and all of them over the
// environment.
func nvshmemFiles(p place) []file {
	const alters = "only releases of NVSHMEM with configuration files read it; earlier ones read the environment alone"
	var out []file
	if named := p.env["NVSHMEM_CONF_FILE"]; named != "" {
		out = append(out, file{path: absolute(p, named), level: "user file", read: readNVSHMEM, alters: alters})
	}
	if h := p.userHome(); path.IsAbs(h) {
		out = append(out, file{path: path.Join(h, ".nvshmem.conf"), level: "user file", read: readNVSHMEM, alters: alters})
	}
	return append(out, file{path: "/etc/nvshmem.conf", level: "system file", read: readNVSHMEM, alters: alters})
}

// absolute makes a name that a process gave absolute.
func absolute(p place, name string) string {
	if path.IsAbs(name) || p.cwd == "" {
		return path.Clean(name)
	}
	return path.Join(p.cwd, name)
}

// dedup keeps the first of files of the same path.
func dedup(files []file) []file {
	seen := map[string]bool{}
	var out []file
	for _, f := range files {
		if !seen[f.path] {
			seen[f.path] = true
			out = append(out, f)
		}
	}
	return out
}

// readINI reads a file of UCX or UCC: NAME=VALUE with blanks around both trimmed,
// comments, and sections. Sections apply to some machines only and are left out.
func readINI(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			break // what follows is conditional
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if i := strings.Index(value, " ;"); i >= 0 {
			value = value[:i]
		}
		out[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return out
}

// readNCCL reads a file of NCCL: NAME=VALUE up to the end of the line, with nothing
// trimmed: a blank in front stays in the name, which then is nobody's. The first of two
// counts, as setenv does not overwrite.
func readNCCL(text string) map[string]string {
	const most = 1023 // of a name and of a value
	out := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		name, value, ok := strings.Cut(line, "=")
		if _, dup := out[name]; dup || !ok || strings.HasPrefix(line, "#") {
			continue
		}
		out[name[:min(len(name), most)]] = value[:min(len(value), most)]
	}
	return out
}

// readMCA reads a parameter file of Open MPI: name = value, with quotes as part of the
// value.
func readMCA(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		out[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return out
}

// readFabric reads libfabric.conf: NAME=VALUE, nothing trimmed, the first counts.
func readFabric(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if _, dup := out[name]; ok && !dup {
			out[name] = value
		}
	}
	return out
}

// readNVSHMEM reads a file of NVSHMEM: trimmed, with comments also behind a value.
func readNVSHMEM(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.HasPrefix(line, "#") {
			continue
		}
		value = strings.TrimSpace(value)
		for i := 1; i < len(value); i++ {
			if value[i] == '#' && (value[i-1] == ' ' || value[i-1] == '\t') {
				value = strings.TrimSpace(value[:i])
				break
			}
		}
		out[name] = value
	}
	return out
}

// writers are words of comments by which tools mark the files that they write.
var writers = []string{"generated by", "managed by", "written by", "do not edit", "created by", "automatically generated"}

// writtenBy returns the comment of a file that says that a tool wrote it, "" for none.
func writtenBy(text string) string {
	n := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if n++; n > 20 || !strings.HasPrefix(line, "#") {
			continue
		}
		lower := strings.ToLower(line)
		for _, w := range writers {
			if strings.Contains(lower, w) {
				comment := strings.TrimSpace(strings.TrimLeft(line, "#"))
				return printable.Clip(comment, 120)
			}
		}
	}
	return ""
}

// absent reports whether a configuration file is simply not there.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
