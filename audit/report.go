package audit

// FormatVersion is the version of the JSON of a Report: a higher minor number adds
// members, a higher major number changes the meaning of one.
const FormatVersion = "1.1"

// A Report is the audit of a command line or of processes. Members with a Process are
// about the process of that id; a command line has none.
type Report struct {
	FormatVersion string `json:"format_version"`
	Host          string `json:"host,omitempty"`
	Workload      string `json:"workload,omitempty"`
	// Hint is what the spec wants, bytes; nil without a spec or a hint.
	Hint      *int64    `json:"hint"`
	Command   []string  `json:"command,omitempty"`
	Processes []Process `json:"processes"`
	Variables []Value   `json:"variables"`
	Modules   []Module  `json:"modules"`
	Findings  []Finding `json:"findings"`
	// Notes are what could not be looked at.
	Notes []string `json:"notes"`
}

// A Process is one that was audited.
type Process struct {
	PID     int    `json:"pid"`
	Comm    string `json:"comm"`
	Cmdline string `json:"cmdline,omitempty"`
	// Workload is the one that the process is of: the report's, or what its transport
	// or its environment names; "" for none.
	Workload string `json:"workload,omitempty"`
	// Err says why nothing could be found out.
	Err string `json:"error,omitempty"`
}

// A Value is one variable as its library reads it.
type Value struct {
	Process int    `json:"process,omitempty"`
	Library string `json:"library"`
	Name    string `json:"name"`
	// Parsed is what the library uses: a number, a word such as "inf", or null when it
	// takes nothing or fails.
	Parsed     Parsed      `json:"parsed"`
	Unit       string      `json:"unit"`
	Origin     string      `json:"origin"` // of what wins: "environment", "system file /etc/nccl.conf", "default"
	Candidates []Candidate `json:"candidates"`
}

// A Candidate is one text that could have given a value, strongest first.
type Candidate struct {
	Origin string `json:"origin"`
	Text   string `json:"text"`
	Parsed Parsed `json:"parsed"`
	Wins   bool   `json:"wins"`
	Why    string `json:"why,omitempty"` // it does not count, or what is odd about it

	generic bool // of the generic name
}

// A Module is a communication library that a process has mapped.
type Module struct {
	Process int    `json:"process"`
	Library string `json:"library"`
	Path    string `json:"path"`
	Version string `json:"version,omitempty"` // release that its file name carries; "" is not known
	// Symbol is "exported", "local only", "not built in" or "not observable": whether it
	// has the function that asks for the hint.
	Symbol string `json:"hint_symbol"`
	Note   string `json:"note,omitempty"`
}

// A Severity says what a finding means.
type Severity string

// Severities, gravest first. The first two end the command with their own exit code.
const (
	Contradiction Severity = "contradiction" // not what the spec wants, or what others of the job have
	Trap          Severity = "trap"          // not what its writer means
	Warning       Severity = "warning"
	Note          Severity = "note"
)

// A Finding is something to know about a variable.
type Finding struct {
	Process  int      `json:"process,omitempty"`
	Severity Severity `json:"severity"`
	Library  string   `json:"library,omitempty"`
	Variable string   `json:"variable,omitempty"`
	Message  string   `json:"message"`
	Do       string   `json:"do,omitempty"` // what to do
}

// Clean reports whether nothing contradicts the spec and nothing is a trap.
func (r *Report) Clean() bool {
	for _, f := range r.Findings {
		if f.Severity == Contradiction || f.Severity == Trap {
			return false
		}
	}
	return true
}

// newReport returns a report whose lists are empty, not null.
func newReport() *Report {
	return &Report{
		FormatVersion: FormatVersion, Processes: []Process{}, Variables: []Value{}, Modules: []Module{}, Findings: []Finding{}, Notes: []string{},
	}
}
