package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestUsageErrors: what is wrong with the number of arguments is said in the words of the
// help line, by every command.
func TestUsageErrors(t *testing.T) {
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if !c.HasSubCommands() && !c.Hidden {
			all = append(all, c)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
	if len(all) < 20 {
		t.Fatalf("%d commands", len(all))
	}
	refused := 0
	for _, c := range all {
		for n := range 5 {
			var args []string
			for i := range n {
				args = append(args, fmt.Sprintf("x%d", i))
			}
			err := c.ValidateArgs(args)
			if err == nil {
				continue
			}
			refused++
			for _, counted := range []string{"arg(s)", "unknown command"} {
				if strings.Contains(err.Error(), counted) {
					t.Errorf("%s with %d arguments: %v", c.CommandPath(), n, err)
				}
			}
		}
	}
	if refused < 40 {
		t.Errorf("%d usage errors were looked at", refused)
	}
}

// TestHelpWidth: the texts of help fit a terminal, and no line is cut short for no reason.
func TestHelpWidth(t *testing.T) {
	const widest = 92
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		lines := strings.Split(c.Long, "\n")
		for i, line := range lines {
			if len(line) > widest {
				t.Errorf("%s: %d characters in %q", c.CommandPath(), len(line), line)
			}
			if i == 0 || line == "" || lines[i-1] == "" || strings.HasPrefix(line, " ") {
				continue
			}
			word, _, _ := strings.Cut(line, " ")
			if last := lines[i-1]; len(last)+1+len(word) < 60 && !strings.HasPrefix(line, "Exit codes") {
				t.Errorf("%s: %q could go on with %q", c.CommandPath(), last, word)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
}
