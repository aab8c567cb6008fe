package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmatune/rdmatune/spec"
)

// ofWorkload wraps the check of a command's arguments, of which the first is a WORKLOAD:
// where one is a spec, the flag that takes it is named.
func ofWorkload(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		own := args
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			own = args[:dash]
		}
		err := check(cmd, args)
		for _, a := range own {
			if (err != nil || !spec.ValidAddress(a)) && isSpec(a) {
				return notWorkload(a)
			}
		}
		return err
	}
}

// notWorkload says that an argument is a spec where a workload is needed.
func notWorkload(arg string) error {
	return fmt.Errorf("%q is a file or directory, not a workload; a spec is given by --spec %s", arg, arg)
}

// isSpec reports whether an argument is a spec by its looks: a .hcl file or a directory.
func isSpec(arg string) bool {
	info, err := os.Stat(arg)
	return err == nil && (info.IsDir() || strings.HasSuffix(arg, ".hcl"))
}

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

// flagError says of a value that is no number what its flag takes, in place of the name
// of the function that could not read it.
func flagError(_ *cobra.Command, err error) error {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if _, number := errors.AsType[*strconv.NumError](err); !ok || !number {
		return err
	}
	takes := "a number"
	switch bad.GetFlag().Value.Type() {
	case "uint16":
		takes = "a whole number from 0 to 65535"
	case "int", "int64":
		takes = "a whole number"
	case "bool":
		takes = "true or false"
	}
	return fmt.Errorf("--%s %q: it must be %s", bad.GetFlag().Name, bad.GetValue(), takes)
}
