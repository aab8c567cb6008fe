package main

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
)

func TestEscapeRoff(t *testing.T) {
	for in, want := range map[string]string{
		"":                 "",
		"a-b":              `a\-b`,
		`C:\dir`:           `C:\edir`,
		".so /etc/passwd":  `\&.so /etc/passwd`,
		"first\n'second'":  "first\n\\&'second'",
		"a. b' are no\nok": "a. b' are no\nok",
	} {
		if got := escapeRoff(in); got != want {
			t.Errorf("escapeRoff(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestManPage holds the whole page of a command with everything that a page can have.
func TestManPage(t *testing.T) {
	root := &cobra.Command{Use: "tool", Short: "A \"tool\"", Version: "1.0"}
	root.PersistentFlags().String("node", "local", "the `node`")
	sub := &cobra.Command{
		Use: "do THING", Short: "Do it", Long: "Does it.\n.not a request\n\nA table:\n  a  1\n  b  2",
		Example: "  tool do x\n  tool do y", Run: func(*cobra.Command, []string) {},
	}
	sub.Flags().BoolP("fast", "f", false, "do it fast")
	sub.Flags().Int("secret", 3, "not shown")
	if err := sub.Flags().MarkHidden("secret"); err != nil {
		t.Fatal(err)
	}
	root.AddCommand(sub)
	const want = `.TH "TOOL\-DO" 1 "" "tool 1.0"
.SH NAME
tool\-do \- Do it
.SH SYNOPSIS
.B tool do THING [flags]
.SH DESCRIPTION
Does it.
\&.not a request
.PP
.nf
A table:
  a  1
  b  2
.fi
.SH OPTIONS
.TP
\fB\-f\fR, \fB\-\-fast\fR
do it fast
.SH OPTIONS OF EVERY COMMAND
.TP
\fB\-\-node\fR \fInode\fR
the node (default local)
.SH EXAMPLES
.nf
  tool do x
  tool do y
.fi
.SH SEE ALSO
.BR tool (1)
`
	if got := manPage(sub); !bytes.Equal(got, []byte(want)) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
