package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// newDocs is for packaging: it writes what is installed beside the program, out of
// the program's own command tree, so that it cannot say anything else.
func newDocs() *cobra.Command {
	return &cobra.Command{
		Use:   "docs DIR",
		Short: "Write man pages and shell completions",
		Long: `docs writes a man page for every command to DIR/man1, and completions for bash,
zsh and fish to DIR/bash, DIR/zsh and DIR/fish, each under the name that the shell
looks for.`,
		Args:   arguments(1, 1, "one DIRECTORY is"),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeDocs(cmd.Root(), args[0])
		},
	}
}

func writeDocs(root *cobra.Command, dir string) error {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for name, write := range map[string]func(string) error{
		"bash/" + root.Name(): func(path string) error { return root.GenBashCompletionFileV2(path, true) },
		"zsh/_" + root.Name(): root.GenZshCompletionFile,
		"fish/" + root.Name() + ".fish": func(path string) error {
			return root.GenFishCompletionFile(path, true)
		},
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := write(path); err != nil {
			return fmt.Errorf("completion: %w", err)
		}
	}
	man := filepath.Join(dir, "man1")
	if err := os.MkdirAll(man, 0o755); err != nil {
		return err
	}
	return writeManPages(root, man)
}

// writeManPages writes the page of c and of every command below it that its help shows.
func writeManPages(c *cobra.Command, dir string) error {
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	if err := os.WriteFile(filepath.Join(dir, manName(c)+".1"), manPage(c), 0o644); err != nil {
		return err
	}
	var err error
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			err = cmp.Or(err, writeManPages(sub, dir))
		}
	}
	return err
}
