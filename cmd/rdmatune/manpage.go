package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manPage is the page of one command for section 1, in the macros of man(7). The text
// is the command's help. It has no date, so that the same program has the same page.
func manPage(c *cobra.Command) []byte {
	var b bytes.Buffer
	name := manName(c)
	fmt.Fprintf(&b, ".TH %s 1 \"\" %s\n", quoteRoff(strings.ToUpper(name)), quoteRoff(c.Root().Name()+" "+c.Root().Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escapeRoff(name), escapeRoff(c.Short))
	b.WriteString(".SH SYNOPSIS\n")
	if c.Runnable() {
		fmt.Fprintf(&b, ".B %s\n", escapeRoff(c.UseLine()))
	}
	if c.HasAvailableSubCommands() {
		if c.Runnable() {
			b.WriteString(".br\n")
		}
		fmt.Fprintf(&b, ".B %s\nCOMMAND\n", escapeRoff(c.CommandPath()))
	}
	if c.Long != "" {
		b.WriteString(".SH DESCRIPTION\n")
		for i, text := range strings.Split(strings.TrimSpace(c.Long), "\n\n") {
			if i > 0 {
				b.WriteString(".PP\n")
			}
			manText(&b, text)
		}
	}
	manOptions(&b, "OPTIONS", c.NonInheritedFlags())
	manOptions(&b, "OPTIONS OF EVERY COMMAND", c.InheritedFlags())
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", escapeRoff(strings.TrimRight(c.Example, "\n")))
	}
	var also []string
	if c.HasParent() {
		also = append(also, manName(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			also = append(also, manName(sub))
		}
	}
	for i, page := range also {
		if i == 0 {
			b.WriteString(".SH SEE ALSO\n")
		}
		end := ","
		if i == len(also)-1 {
			end = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", escapeRoff(page), end)
	}
	return b.Bytes()
}

// manName is what man is asked for: "rdmatune-bench-connect".
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manText writes one paragraph. One that holds an indented line is a table or an
// example, whose lines stay as they are.
func manText(b *bytes.Buffer, text string) {
	if strings.HasPrefix(text, " ") || strings.Contains(text, "\n ") {
		fmt.Fprintf(b, ".nf\n%s\n.fi\n", escapeRoff(text))
		return
	}
	fmt.Fprintf(b, "%s\n", escapeRoff(text))
}

func manOptions(b *bytes.Buffer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		head := "\\fB" + escapeRoff("--"+f.Name) + "\\fR"
		if f.Shorthand != "" {
			head = "\\fB" + escapeRoff("-"+f.Shorthand) + "\\fR, " + head
		}
		if kind != "" {
			head += " \\fI" + escapeRoff(kind) + "\\fR"
		}
		fmt.Fprintf(b, ".TP\n%s\n%s", head, escapeRoff(usage))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" && f.DefValue != "0s" {
			fmt.Fprintf(b, " (default %s)", escapeRoff(f.DefValue))
		}
		b.WriteByte('\n')
	})
}

// escapeRoff makes text that roff prints as it stands: backslashes and hyphens, and
// lines that would else be requests.
func escapeRoff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// quoteRoff is text as one argument of a macro.
func quoteRoff(text string) string {
	return `"` + strings.ReplaceAll(escapeRoff(text), `"`, `\(dq`) + `"`
}
