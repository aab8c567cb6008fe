package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// A setting is a text given to a variable, and by what.
type setting struct{ text, origin string }

// A subject is one process, running or about to run.
type subject struct {
	pid   int
	comm  string
	place place
	// env are the variables with where each comes from.
	env map[string]setting
	// args are settings of the command line, above the environment (--mca), by
	// environment name; tuned are those of a file that stands below it (--tune).
	args, tuned map[string]setting
	// modules are the mapped libraries; known is false when it cannot be told which.
	modules  []Module
	known    bool
	readFile func(name string) ([]byte, error)
	// own is the hint in force as rdmatune's transport itself tells it; nil without.
	own    *Own
	mapped []string // paths of all mapped files

	report *Report
	hint   *int64
	texts  map[string]string // files read so far
}

// An Own is the hint of a process as its transport tells it.
type Own struct {
	Workload string
	Size     *int64 // bytes; nil for none
	Origin   string
	Losers   []Candidate
}

// audit adds what is found of s to its report.
func (s *subject) audit() {
	s.texts = map[string]string{}
	for _, l := range Libraries {
		if s.known && l.ID != "rdmatune" && !s.has(l) {
			s.unread(l)
			continue
		}
		s.library(l)
	}
	s.rewritten()
	s.names()
}

func (s *subject) has(l *Library) bool {
	return slices.ContainsFunc(s.modules, func(m Module) bool { return m.Library == l.ID || l.ID == "ucc" && m.Library == "ucc" })
}

func (s *subject) find(sev Severity, v *Variable, do, format string, args ...any) {
	f := Finding{Process: s.pid, Severity: sev, Message: printable.Line(fmt.Sprintf(format, args...)), Do: printable.Line(do)}
	if v != nil {
		f.Library, f.Variable = v.Library, v.Name
	}
	s.report.Findings = append(s.report.Findings, f)
}

// passers are launchers: they hand their environment on, and read little of it.
var passers = []string{"mpirun", "mpiexec", "orterun", "prterun", "orted", "prted", "srun", "slurmstepd"}

// unread notes variables of a library that the process has not mapped.
func (s *subject) unread(l *Library) {
	if slices.Contains(passers, s.comm) {
		return
	}
	for i := range Table {
		v := &Table[i]
		if _, set := s.env[v.Name]; !set || v.Library != l.ID {
			continue
		}
		sev := Note
		if v.Hint() && len(s.modules) > 0 {
			sev = Trap
		}
		s.find(sev, v, "remove it, or start the program with "+l.Name, "nothing in the process reads it: %s is not mapped (a copy linked statically cannot be seen)", l.Name)
	}
}

// library audits the variables of one library.
func (s *subject) library(l *Library) {
	if l.ID == "rdmatune" && s.own != nil {
		s.ownHint()
		return
	}
	files := s.files(l)
	for i := range Table {
		v := &Table[i]
		if v.Library != l.ID {
			continue
		}
		cs := s.candidates(l, v, files)
		set := slices.ContainsFunc(cs, func(c Candidate) bool { return !c.generic })
		if !set && !(v.Hint() && s.wants(l)) {
			continue
		}
		s.value(v, s.decide(v, cs))
	}
}

// wants reports whether the hint of a library is shown though nothing sets it.
func (s *subject) wants(l *Library) bool {
	return l.ID == "rdmatune" || s.known && s.has(l)
}

// A source is a configuration file that was read.
type source struct {
	file
	values map[string]string
}

// files reads the configuration files of a library.
func (s *subject) files(l *Library) []source {
	if l.files == nil || s.readFile == nil {
		return nil
	}
	p := s.place
	for _, m := range s.modules {
		if m.Library == l.ID {
			p.module = m.Path
			break
		}
	}
	var out []source
	for _, f := range l.files(p) {
		text, ok := s.text(f.path)
		if !ok {
			continue
		}
		if (l.ID == "ucx" || l.ID == "ucc") && strings.Contains(text, "\n[") {
			s.report.Notes = append(s.report.Notes, f.path+": its sections are for some machines only and are not looked into")
		}
		src := source{f, f.read(text)}
		if len(src.values) == 0 {
			continue
		}
		out = append(out, src)
		if tool := writtenBy(text); tool != "" {
			s.find(Note, nil, "change it where that tool is configured", "%s: a tool writes this file (%q)", f.path, tool)
		}
		s.fileNames(l, f.path, src.values)
	}
	return out
}

// text returns a configuration file, false when there is none.
func (s *subject) text(name string) (string, bool) {
	if t, ok := s.texts[name]; ok {
		return t, t != ""
	}
	b, err := s.readFile(name)
	if err != nil && !absent(err) {
		s.report.Notes = append(s.report.Notes, "not readable, so perhaps not all: "+err.Error())
	}
	s.texts[name] = string(b)
	return string(b), len(b) > 0
}

// fileNames finds names in a file that the library does not look for there.
func (s *subject) fileNames(l *Library, path string, values map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		trimmed := strings.TrimSpace(name)
		v := VariableByName(trimmed)
		switch {
		case trimmed != name && v != nil:
			s.find(Trap, v, "remove the blanks", "%s: %q has blanks around the name, which this library does not trim: it reads nothing of it", path, name)
		case l.ID == "ompi" && v != nil && v.Library == "ompi":
			s.find(Trap, v, "write "+v.FileKey, "%s: %s is the name in the environment; in a file it is %s", path, name, v.FileKey)
		case v == nil && l.owns(trimmed):
			if near := nearest(trimmed); near != "" {
				s.find(Trap, nil, "write "+near, "%s: %s is not a variable of %s that is known; the nearest one is %s", path, printable.Line(trimmed), l.Name, near)
			}
		}
	}
}

// candidates lists what could give v a value, strongest first.
func (s *subject) candidates(l *Library, v *Variable, files []source) []Candidate {
	var out []Candidate
	add := func(text, origin, why string) {
		out = append(out, Candidate{Origin: origin, Text: text, Parsed: v.Read(text), Why: why})
	}
	if a, ok := s.args[v.Name]; ok {
		add(a.text, a.origin, "")
	}
	env := func() {
		if e, ok := s.env[v.Name]; ok {
			add(e.text, e.origin, "")
		}
	}
	fromFiles := func() {
		for _, f := range files {
			if text, ok := f.values[v.FileKey]; ok && v.FileKey != "" {
				add(text, f.level+" "+f.path, f.alters)
			}
		}
	}
	if l.filesFirst != nil && l.filesFirst(s.place.env) {
		fromFiles()
		env()
	} else {
		env()
		if a, ok := s.tuned[v.Name]; ok {
			add(a.text, a.origin, "")
		}
		fromFiles()
	}
	for _, o := range overrides {
		if o.variable != v.Name || !s.loaded(o) {
			continue
		}
		at := slices.IndexFunc(out, func(c Candidate) bool { return strings.Contains(c.Origin, "file ") })
		if at < 0 {
			at = len(out) // below all
		}
		out = slices.Insert(out, at, Candidate{Origin: "set by " + o.name, Text: o.value, Parsed: v.Read(o.value), Why: o.why})
	}
	if v.fallback != "" {
		if g := VariableByName(v.fallback); g != nil {
			for _, c := range s.candidates(LibraryByID(g.Library), g, s.genericFiles(l, g, files)) {
				c.generic = true
				c.Why = strings.TrimPrefix(c.Why+"; as "+g.Name, "; ")
				out = append(out, c)
			}
		}
	}
	return out
}

// genericFiles are the files in which a generic name is looked for.
func (s *subject) genericFiles(l *Library, g *Variable, files []source) []source {
	if g.Library == l.ID {
		return files
	}
	return nil // UCC's files are not UCX's
}

// decide marks the candidate that wins and returns the value.
func (s *subject) decide(v *Variable, cs []Candidate) Value {
	out := Value{Process: s.pid, Library: v.Library, Name: v.Name, Unit: v.Unit, Origin: "default", Candidates: cs}
	if cs == nil {
		out.Candidates = []Candidate{}
	}
	out.Parsed = v.defaultValue()
	for i := range cs {
		c := &cs[i]
		if c.Parsed.Rejected != "" {
			c.Why = strings.TrimPrefix(c.Why+"; "+c.Parsed.Rejected, "; ")
			if v.Library == "rdmatune" {
				continue // falls through to what is published
			}
			c.Wins = true
			if !c.Parsed.KeepsDefault {
				out.Parsed, out.Origin = c.Parsed, c.Origin
			}
			s.find(Trap, v, "give a value that it takes", "%s=%s (%s): %s", v.Name, printable.Line(c.Text), c.Origin, c.Parsed.Rejected)
			return out
		}
		c.Wins = true
		out.Parsed, out.Origin = c.Parsed, c.Origin
		if c.Parsed.Trap != "" {
			c.Why = strings.TrimPrefix(c.Why+"; "+c.Parsed.Trap, "; ")
			do := "write the number alone"
			if n, ok := meant(c.Text); ok {
				do = fmt.Sprintf("write %s=%d", v.Name, n)
			}
			s.find(Trap, v, do, "%s (%s)", c.Parsed.Trap, c.Origin)
		}
		return out
	}
	if len(cs) > 0 {
		s.find(Trap, v, "give a value that it takes", "%s=%s (%s) is rejected: %s", v.Name, printable.Line(cs[0].Text), cs[0].Origin, cs[0].Parsed.Rejected)
	}
	return out
}

// defaultValue is the default as the library has it.
func (v *Variable) defaultValue() Parsed {
	if p := v.Read(v.Default); p.Number != nil || p.Word != "" && v.Unit == "text" {
		return p
	}
	return Parsed{Word: v.Default}
}

// value adds a value and compares it with the spec.
func (s *subject) value(v *Variable, out Value) {
	s.report.Variables = append(s.report.Variables, out)
	if s.hint == nil || !v.Hint() || out.Origin == "default" {
		return
	}
	if *s.hint == 0 {
		s.find(Note, v, "unset it", "the spec's hint is 0, and %s=%s forces a threshold (%s)", v.Name, out.Parsed, out.Origin)
		return
	}
	if n, ok := out.Parsed.Int64(); ok && v.Scope == "channel" && n > 0 && n <= *s.hint && *s.hint%n == 0 {
		return // a whole number of channels makes the hint
	}
	want := v.Read(v.express(*s.hint))
	if v.Library == "ompi" {
		// The header is 48 to 64 bytes: any of them expresses the hint.
		if n, ok := out.Parsed.Int64(); ok && n >= *s.hint+48 && n <= *s.hint+ob1Header {
			return
		}
	}
	if !out.Parsed.equal(want) {
		s.find(Contradiction, v, fmt.Sprintf("write %s=%s", v.Name, v.express(*s.hint)), "the spec's hint is %d bytes, for which it would be %s; the library uses %s (%s). Its rule: %s",
			*s.hint, want, out.Parsed, out.Origin, v.Boundary)
	}
}

// ownHint adds the hint as the transport itself tells it.
func (s *subject) ownHint() {
	v := VariableByName("RDMA_LOW_LATENCY_HINT")
	out := Value{Process: s.pid, Library: v.Library, Name: v.Name, Unit: v.Unit, Origin: s.own.Origin, Parsed: Parsed{Word: "none"}, Candidates: []Candidate{}}
	if s.own.Size != nil {
		out.Parsed = whole(*s.own.Size)
		out.Candidates = append(out.Candidates, Candidate{Origin: s.own.Origin, Text: decimal(*s.own.Size), Parsed: out.Parsed, Wins: true})
	}
	out.Candidates = append(out.Candidates, s.own.Losers...)
	s.report.Variables = append(s.report.Variables, out)
	if e, ok := s.env[v.Name]; ok {
		if p := v.Read(e.text); p.Rejected != "" {
			s.find(Trap, v, "give a size that it takes", "%s=%s is rejected: %s", v.Name, printable.Line(e.text), p.Rejected)
		}
	}
	if s.hint != nil && (s.own.Size == nil || *s.own.Size != *s.hint) {
		s.find(Contradiction, v, "run rdmatune apply", "the spec's hint is %d bytes; the process follows %s (%s)", *s.hint, out.Parsed, s.own.Origin)
	}
}
