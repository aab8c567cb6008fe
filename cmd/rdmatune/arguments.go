package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// many is no bound of arguments.
const many = -1

// arguments checks the number of a command's arguments, and says in the words of its help
// line what is wrong. need is what is needed, with its verb: "one ID is".
func arguments(low, high int, need string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		_, line, _ := strings.Cut(cmd.Use, " ")
		usage := strings.TrimSpace(cmd.CommandPath() + " " + line)
		switch {
		case len(args) < low:
			return fmt.Errorf("%s needed: %s", need, usage)
		case high == 0 && len(args) > 0:
			return fmt.Errorf("%s takes no argument, and %q is one", usage, args[0])
		case high != many && len(args) > high:
			return fmt.Errorf("%q is one argument too many: %s", args[high], usage)
		}
		return nil
	}
}
