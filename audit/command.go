package audit

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/node"
)

// Command audits a command line before it runs, with the environment that it would get
// from environ: through env, mpirun and srun as these pass variables on.
func Command(n *node.Node, args, environ []string, cwd string, o Options) *Report {
	r := newReport()
	r.Workload, r.Hint, r.Command = o.Workload, o.Hint, args
	r.Host, _ = n.FS().ReadString("/proc/sys/kernel/hostname")
	s := &subject{
		env: map[string]setting{}, args: map[string]setting{}, tuned: map[string]setting{}, report: r, hint: o.Hint,
		readFile: func(name string) ([]byte, error) { return n.ReadFor(0, name) },
	}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			if _, dup := s.env[name]; !dup {
				s.env[name] = setting{value, "environment"}
			}
		}
	}
	s.place.cwd = cwd
	s.launchers(args)
	s.place.env = map[string]string{}
	for name, e := range s.env {
		s.place.env[name] = e.text
	}
	if b, err := n.ReadFor(0, "/etc/passwd"); err == nil {
		s.place.home = homeOf(string(b), os.Getuid())
	}
	s.audit()
	r.Notes = append(r.Notes, "which libraries the program will load is not known before it runs: a variable may be read by nothing")
	return r
}

// maxLaunchers bounds launchers in front of each other.
const maxLaunchers = 8

// launchers follows a command line through the launchers in front of the program and
// changes the environment as they do.
func (s *subject) launchers(args []string) {
	for range maxLaunchers {
		if len(args) == 0 {
			return
		}
		switch path.Base(args[0]) {
		case "env":
			args = s.envCommand(args[1:])
		case "mpirun", "mpiexec", "orterun", "prterun":
			s.mpirun(path.Base(args[0]), args[1:])
			return // each of its programs may be a launcher, but none of those passes variables on
		case "srun":
			args = s.srun(args[1:])
		case "sh", "bash", "dash":
			if slices.Contains(args, "-c") {
				s.report.Notes = append(s.report.Notes, "the text of "+args[0]+" -c is not looked into: what it sets is not known")
			}
			return
		default:
			return
		}
	}
}

// envCommand is env(1): -i, -u NAME and assignments; it returns the command behind.
func (s *subject) envCommand(args []string) []string {
	for i := 0; i < len(args); i++ {
		a := args[i]
		name, value, assigns := strings.Cut(a, "=")
		switch {
		case a == "-i" || a == "--ignore-environment" || a == "-":
			clear(s.env)
		case (a == "-u" || a == "-C" || a == "-S") && i+1 < len(args):
			i++
			if a == "-u" {
				delete(s.env, args[i])
			}
		case strings.HasPrefix(a, "--unset="):
			delete(s.env, value)
		case strings.HasPrefix(a, "-"):
		case assigns:
			s.env[name] = setting{value, "env " + name + "="}
		default:
			return args[i:]
		}
	}
	return nil
}

// srun is Slurm's --export: ALL, NONE, names, and assignments.
func (s *subject) srun(args []string) []string {
	for i, a := range args {
		list, ok := strings.CutPrefix(a, "--export=")
		if a == "--export" && i+1 < len(args) {
			list, ok = args[i+1], true
		}
		if !ok {
			continue
		}
		kept := map[string]setting{}
		for word := range strings.SplitSeq(list, ",") {
			name, value, assigns := strings.Cut(word, "=")
			switch {
			case word == "ALL":
				for k, v := range s.env {
					if _, done := kept[k]; !done {
						kept[k] = v
					}
				}
			case assigns:
				kept[name] = setting{value, "srun --export"}
			default:
				if v, ok := s.env[name]; ok {
					kept[name] = v
				}
			}
		}
		s.env = kept
	}
	return nil // where the program starts among srun's options does not matter
}

// one lists mpirun's options with one argument that do not matter here.
var one = []string{
	"-n", "-np", "--np", "-c", "-N", "-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile", "-map-by", "--map-by", "-bind-to", "--bind-to",
	"-rank-by", "--rank-by", "-npernode", "--npernode", "-npersocket", "--npersocket", "-wdir", "--wdir", "-wd", "-path", "--path", "-prefix", "--prefix",
	"-timeout", "--timeout", "-output-filename", "--output-filename", "--output", "-rf", "--rankfile", "-rankfile", "-app", "--app", "-cpu-set", "--cpu-set", "--stdin", "-ppn", "-f",
}

// mpirun reads the options by which mpirun passes variables on.
func (s *subject) mpirun(name string, args []string) {
	exported := map[string]bool{}
	remote := false
	program := false
	for i := 0; i < len(args); i++ {
		a := args[i]
		if program {
			program = a != ":" // another program with options of its own
			continue
		}
		take := func(n int) []string { // the option's arguments
			if i+n >= len(args) {
				i = len(args)
				return nil
			}
			i += n
			return args[i-n+1 : i+1]
		}
		switch {
		case a == "-x":
			for _, v := range take(1) {
				for word := range strings.SplitSeq(v, ",") {
					s.export(name, word, exported)
				}
			}
		case slices.Contains([]string{"--mca", "-mca", "--gmca", "-gmca", "--omca", "-omca"}, a):
			if kv := take(2); kv != nil {
				s.args["OMPI_MCA_"+kv[0]] = setting{kv[1], name + " " + a + " " + kv[0]}
			}
		case a == "-genv" || a == "-env":
			if kv := take(2); kv != nil {
				s.export(name, kv[0]+"="+kv[1], exported)
			}
		case a == "--tune" || a == "-tune" || a == "-am" || a == "--am":
			for _, file := range take(1) {
				s.tuneFile(name, file, exported)
			}
		case slices.Contains([]string{"-H", "-host", "--host", "-hostfile", "--hostfile", "-machinefile", "--machinefile", "-f"}, a):
			remote = true
			take(1)
		case slices.Contains(one, a):
			take(1)
		case strings.HasPrefix(a, "-"):
			remote = remote || strings.HasPrefix(a, "--host")
		default:
			program = true
		}
	}
	if !remote {
		return
	}
	for i := range Table {
		v := &Table[i]
		e, ok := s.env[v.Name]
		if ok && !exported[v.Name] && e.origin == "environment" && v.Library != "ompi" {
			s.find(Warning, v, "add -x "+v.Name, "%s passes it on to ranks of this node alone: without -x the ranks of other hosts do not get it", name)
		}
	}
}

// export is -x NAME or -x NAME=VALUE.
func (s *subject) export(launcher, word string, exported map[string]bool) {
	name, value, assigns := strings.Cut(word, "=")
	exported[name] = true
	if assigns {
		s.env[name] = setting{value, launcher + " -x " + name + "="}
		return
	}
	if e, ok := s.env[name]; ok {
		s.env[name] = setting{e.text, launcher + " -x " + name + ", from the environment"}
		return
	}
	s.report.Findings = append(s.report.Findings, Finding{
		Severity: Trap, Variable: printable.Line(name), Message: fmt.Sprintf("%s -x %s: it is not set in this environment, so nothing is passed on", launcher, printable.Line(name)), Do: "write -x " + printable.Line(name) + "=VALUE",
	})
}

// tuneFile is a file of mpirun's options, of which -x and --mca count.
func (s *subject) tuneFile(launcher, list string, exported map[string]bool) {
	for name := range strings.SplitSeq(list, ",") {
		file := absolute(s.place, name)
		b, err := s.readFile(file)
		if err != nil {
			s.report.Notes = append(s.report.Notes, "not readable, so not counted: "+err.Error())
			continue
		}
		for line := range strings.Lines(string(b)) {
			words := strings.Fields(line)
			for i := 0; i < len(words); i++ {
				switch {
				case strings.HasPrefix(words[i], "#"):
					i = len(words)
				case words[i] == "-x" && i+1 < len(words):
					s.export(launcher, words[i+1], exported)
					i++
				case (words[i] == "-mca" || words[i] == "--mca") && i+2 < len(words):
					s.tuned["OMPI_MCA_"+words[i+1]] = setting{words[i+2], "tune file " + file}
					i += 2
				case len(words) >= 3 && words[1] == "=" && i == 0: // an old parameter set: name = value
					s.tuned["OMPI_MCA_"+words[0]] = setting{words[2], "tune file " + file}
					i = len(words)
				}
			}
		}
	}
}
