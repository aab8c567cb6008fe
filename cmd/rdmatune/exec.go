package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/audit"
	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
)

func newExec(o *options) *cobra.Command {
	var f envFlags
	var memory string
	var dry bool
	cmd := &cobra.Command{
		Use:   "exec WORKLOAD [flags] -- COMMAND [ARGUMENT...]",
		Short: "Start a program as a workload wants it",
		Long: `Start a program on the workload's CPUs, with memory from their NUMA nodes, with the
variables that express its hint, and with the workload's name. The effective line
goes to standard error; then rdmatune becomes the program. With --dry-run the
variables that would be set are printed instead, one NAME=VALUE on each line.

A WORKLOAD of several instances stands for the one whose match block meets the
environment, such as LOCAL_RANK or OMPI_COMM_WORLD_LOCAL_RANK.

Exit codes: those of the program; 1 when it cannot be started, with the reason.`,
		Example: `  rdmatune exec allreduce --spec node.hcl -- ./train
  mpirun -n 2 rdmatune exec allreduce -- ./train
  rdmatune exec allreduce --dry-run -- ./train`,
		DisableFlagsInUseLine: true, // they stand before the --
		Args: ofWorkload(func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return errors.New("one WORKLOAD is needed, then -- and a command")
			}
			return nil
		}),
		ValidArgsFunction: f.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if !slices.Contains(memoryPolicies, memory) {
				return fmt.Errorf("--memory %.40q: there are %s", memory, strings.Join(memoryPolicies, ", "))
			}
			ctx := cmd.Context()
			s, err := o.open(ctx)
			if err != nil {
				return err
			}
			defer s.close()
			w, err := f.workload(ctx, o, s, args[0], os.Environ())
			if err != nil {
				return err
			}
			facts, err := s.node.Facts(ctx)
			if err != nil {
				return err
			}
			l, err := newLaunch(w, facts, &f, memory, os.Environ())
			if err != nil {
				return err
			}
			local := s.node.Kind() == node.Local
			if !dry && !local {
				return fmt.Errorf("node %s is %s: no program runs there; --dry-run shows what would be set", s.node.Ref(), s.node.Kind())
			}
			program := ""
			if local { // another machine has other programs
				if program, err = find(args[1]); err != nil {
					return err
				}
			}
			printf(os.Stderr, "%s\n", l)
			if !dry {
				return l.run(program, args[1:])
			}
			for _, v := range l.set {
				printf(os.Stdout, "%s\n", printable.Line(v))
			}
			return nil
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&memory, "memory", "preferred", "memory from the NUMA nodes of the CPUs: preferred, bind or any")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the effective line and the variables that would be set, and start nothing")
	if err := cmd.RegisterFlagCompletionFunc("memory", cobra.FixedCompletions(memoryPolicies, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag above is not there
	}
	return cmd
}

var memoryPolicies = []string{"preferred", "bind", "any"}

// A launch is what a program is started with.
type launch struct {
	workload string
	hint     *int64
	kept     string // where another hint than the spec's stands, "" for nowhere
	cpus     cpulist.Set
	pinned   bool
	nodes    []int
	memory   string
	environ  []string
	set      []string // of environ, what expresses the workload and its hint
}

// newLaunch works out what w wants on the node.
func newLaunch(w *spec.Workload, facts *node.Facts, f *envFlags, memory string, environ []string) (*launch, error) {
	l := &launch{workload: w.Address, hint: hintOf(w), memory: memory}
	if text := textOf(w, param.Pinning, param.PinCPUs); text != "" {
		cpus, err := cpulist.ParseKernel(text)
		if err != nil {
			return nil, err
		}
		l.cpus, l.pinned = cpus, true
		for _, n := range facts.NUMA {
			if own, err := cpulist.ParseKernel(n.CPUs); err == nil && !own.Intersection(cpus).IsEmpty() {
				l.nodes = append(l.nodes, n.ID)
			}
		}
	}
	env := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			env[name] = value
		}
	}
	override := true
	for _, want := range w.Wants {
		for _, t := range want.Targets {
			for _, s := range t.Settings {
				if b, ok := s.Value.AsBool(); ok && s.ID == param.HintOverride {
					override = b
				}
			}
		}
	}
	for _, line := range audit.Express(audit.Expression{Workload: w.Address, Hint: l.hint, Libraries: f.libraries, Channels: f.channels}) {
		if line.Name == "" {
			continue
		}
		old, set := env[line.Name]
		if set && !override && old != line.Value && line.Name != "RDMATUNE_WORKLOAD" {
			if line.Name == "RDMA_LOW_LATENCY_HINT" {
				l.kept = "environment"
				if n, err := strconv.ParseInt(old, 10, 64); err == nil {
					l.hint = &n
				}
			}
			continue // override = false: the environment's own stands
		}
		env[line.Name] = line.Value
		l.set = append(l.set, line.Name+"="+line.Value)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		l.environ = append(l.environ, name+"="+env[name])
	}
	return l, nil
}

// String is the effective line: words of NAME=VALUE without blanks in them.
func (l *launch) String() string {
	hint := "none"
	if l.hint != nil {
		hint = strconv.FormatInt(*l.hint, 10)
	}
	cpus, memory := "any", "any"
	if l.pinned {
		cpus = cpulist.Format(l.cpus)
		if l.memory != "any" && len(l.nodes) > 0 {
			memory = l.memory + ":" + cpulist.Format(cpulist.New(l.nodes...))
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	rank := "none"
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"} {
		if v := os.Getenv(name); v != "" && len(v) < 20 {
			rank = strconv.Quote(v)
			break
		}
	}
	return fmt.Sprintf("rdmatune: exec host=%s pid=%d rank=%s workload=%s hint=%s origin=%s cpus=%s memory=%s",
		host, os.Getpid(), strings.Trim(rank, `"`), strconv.Quote(l.workload), hint, cmp.Or(l.kept, "spec"), cpus, memory)
}

// find returns the path of the program that a command names.
func find(command string) (string, error) {
	program, err := exec.LookPath(command)
	if err != nil {
		var why *exec.Error
		if errors.As(err, &why) {
			err = why.Err
		}
		return "", fmt.Errorf("%s: %w", command, err)
	}
	return filepath.Abs(program)
}

// run becomes the program. It returns only with the reason that it cannot.
func (l *launch) run(program string, args []string) error {
	// Affinity and memory policy belong to the thread that calls exec.
	runtime.LockOSThread()
	if l.pinned {
		mask := unix.NewCPUSet(cpulist.MaxCPUs)
		for _, cpu := range l.cpus.UnsortedList() {
			mask.Set(cpu)
		}
		if err := unix.SchedSetaffinityDynamic(0, mask); err != nil {
			return fmt.Errorf("run on CPU %s: %w%s", cpulist.Format(l.cpus), err, allowed())
		}
		if l.memory != "any" && len(l.nodes) > 0 {
			if err := setMemoryPolicy(l.memory, l.nodes); err != nil && l.memory == "bind" {
				return err
			} else if err != nil {
				printf(os.Stderr, "Notice: %v\n", err)
			}
		}
	}
	err := unix.Exec(program, args, l.environ)
	if errors.Is(err, unix.ENOEXEC) {
		err = errors.New("exec format error: a script needs a first line such as #!/bin/sh")
	}
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: is it executable, and its file system not mounted noexec?", err)
	}
	return fmt.Errorf("%s: %w", program, err)
}

// allowed says which CPUs this process may use, for an error.
func allowed() string {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return " (this process may use CPU " + strings.TrimSpace(list) + ")"
		}
	}
	return ""
}

// Memory policies of the kernel's mempolicy.h.
const (
	mpolPreferred     = 1
	mpolBind          = 2
	mpolPreferredMany = 5 // since Linux 5.15
	maxNodes          = 1024
)

// setMemoryPolicy is set_mempolicy(2) for the calling thread; it outlives exec.
func setMemoryPolicy(policy string, nodes []int) error {
	var mask [maxNodes / 64]uint64
	for _, n := range nodes {
		if n < 0 || n >= maxNodes {
			return fmt.Errorf("memory of node %d: there are %d at most", n, maxNodes)
		}
		mask[n/64] |= 1 << (n % 64)
	}
	mode := uintptr(mpolBind)
	if policy == "preferred" {
		mode = mpolPreferred
		if len(nodes) > 1 {
			mode = mpolPreferredMany
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, mode, uintptr(unsafe.Pointer(&mask)), maxNodes+1); errno != 0 {
		return fmt.Errorf("memory %s node %s: %w", policy, cpulist.Format(cpulist.New(nodes...)), errno)
	}
	return nil
}
