package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

func newFacts(o *options) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "facts",
		Short: "Show what was found on the node",
		Long: `Show what rdmatune finds on the node: CPUs, NUMA nodes, RDMA devices and their
interrupts, network devices, GPUs and cpufreq policies. A spec can refer to these
as node.*. What could not be found out is null in JSON, never zero.`,
		Example: `  rdmatune facts
  rdmatune facts --json | jq '.rdma[].name'
  rdmatune facts --node sim:dgx`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.open(cmd.Context())
			if err != nil {
				return err
			}
			defer s.close()
			f, err := s.node.Facts(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(f)
			}
			return writeFacts(os.Stdout, f)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// unknownText stands for what could not be found out.
const unknownText = "(unknown)"

func show(p *string) string {
	switch {
	case p == nil:
		return unknownText
	case *p == "":
		return "(none)"
	}
	return *p
}

func showInt(p *int) string {
	if p == nil {
		return unknownText
	}
	return fmt.Sprint(*p)
}

// showCount is how many items a list has; nil is unknown, not empty.
func showCount[T any](list []T) string {
	if list == nil {
		return unknownText
	}
	return fmt.Sprint(len(list))
}

func showKHz(p *int64) string {
	if p == nil {
		return unknownText
	}
	return param.Format(param.MinKHz, param.Int(*p))
}

// writeFacts writes facts as tables for a person.
func writeFacts(out io.Writer, f *node.Facts) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(cells ...any) {
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = fmt.Sprint(c)
		}
		fmt.Fprintln(w, strings.Join(texts, "\t"))
	}
	row("hostname", show(f.Hostname))
	row("kernel", show(f.Kernel))
	row("cpus online", show(f.CPUs.Online))
	row("cpus offline", show(f.CPUs.Offline))
	row("cpus isolated", show(f.CPUs.Isolated))
	row("cpus allowed", show(f.CPUs.Allowed))
	if f.Simulated {
		row("simulated", "yes")
	}
	if f.Virtualised == nil || *f.Virtualised != "" {
		row("virtualised", show(f.Virtualised))
	}
	if len(f.NUMA) > 0 {
		row("\nNUMA NODE", "CPUS")
		for _, n := range f.NUMA {
			cpus := n.CPUs
			row(n.ID, show(&cpus))
		}
	}
	if len(f.RDMA) > 0 {
		row("\nRDMA", "PCI", "NUMA", "LOCAL CPUS", "NETDEVS", "DRIVER", "FIRMWARE", "LINK", "STATE", "IRQS")
		for _, r := range f.RDMA {
			netdevs := strings.Join(r.Netdevs, ",")
			row(r.Name, show(r.PCI), showInt(r.NUMANode), show(r.LocalCPUs), show(&netdevs), show(r.Driver), show(r.Firmware),
				show(r.LinkLayer), show(r.State), showCount(r.IRQs))
		}
	}
	if len(f.GPUs) > 0 {
		row("\nGPU", "NUMA", "LOCAL CPUS")
		for _, g := range f.GPUs {
			row(g.PCI, showInt(g.NUMANode), show(g.LocalCPUs))
		}
	}
	if len(f.Cpufreq) > 0 {
		row("\nCPUFREQ", "DRIVER", "GOVERNOR", "MIN", "MAX", "HARDWARE")
		for _, g := range groupPolicies(f.Cpufreq) {
			p := g.first
			name := p.Policy
			if g.count > 1 {
				name = fmt.Sprintf("%s (and %d more)", name, g.count-1)
			}
			row(name, show(p.Driver), show(p.Governor), showKHz(p.MinKHz), showKHz(p.MaxKHz),
				showKHz(p.HardwareMinKHz)+" to "+showKHz(p.HardwareMaxKHz))
		}
	}
	return w.Flush()
}

type policies struct {
	first node.Policy
	count int
}

// groupPolicies puts neighbours that differ in nothing but their CPU into one row.
func groupPolicies(ps []node.Policy) []policies {
	var out []policies
	last := ""
	for _, p := range ps {
		key := strings.Join([]string{show(p.Driver), show(p.Governor), showKHz(p.MinKHz), showKHz(p.MaxKHz), showKHz(p.HardwareMinKHz), showKHz(p.HardwareMaxKHz)}, "\x00")
		if len(out) > 0 && key == last {
			out[len(out)-1].count++
			continue
		}
		last = key
		out = append(out, policies{p, 1})
	}
	return out
}
