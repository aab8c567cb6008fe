package spec

import (
	"errors"
	"fmt"
	"math/big"
	"sort"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

// functions returns the language's functions; those that ask the node return an
// unknown value while f is nil.
func functions(f *node.Facts) map[string]function.Function {
	return map[string]function.Function{
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc,
		"max": stdlib.MaxFunc, "min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc,
		"coalesce": stdlib.CoalesceFunc, "concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc,
		"distinct": stdlib.DistinctFunc, "element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc,
		"keys": stdlib.KeysFunc, "values": stdlib.ValuesFunc, "length": lengthFunc, "lookup": stdlib.LookupFunc,
		"merge": stdlib.MergeFunc, "range": stdlib.RangeFunc, "slice": stdlib.SliceFunc, "sort": stdlib.SortFunc,
		"zipmap": stdlib.ZipmapFunc, "toset": tosetFunc,
		"format": stdlib.FormatFunc, "join": stdlib.JoinFunc, "split": stdlib.SplitFunc,
		"lower": stdlib.LowerFunc, "upper": stdlib.UpperFunc, "replace": stdlib.ReplaceFunc,
		"trimspace": stdlib.TrimSpaceFunc, "regex": stdlib.RegexFunc,
		"tostring": stdlib.MakeToFunc(cty.String), "tonumber": stdlib.MakeToFunc(cty.Number), "tobool": stdlib.MakeToFunc(cty.Bool),
		"try": tryfunc.TryFunc, "can": tryfunc.CanFunc,

		"cpus_near":        cpusNear(f),
		"cpuset_union":     cpusetFunc(func(a, b cpulist.Set) cpulist.Set { return a.Union(b) }),
		"cpuset_intersect": cpusetFunc(func(a, b cpulist.Set) cpulist.Set { return a.Intersection(b) }),
		"cpuset_subtract":  cpusetFunc(func(a, b cpulist.Set) cpulist.Set { return a.Difference(b) }),

		"gradient_hint":                 gradientHint,
		"median_hint":                   medianHint,
		"deepep_low_latency_rdma_bytes": deepepBytes,
	}
}

// lengthFunc is the length of a collection, or of a string in characters.
var lengthFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		if args[0].Type() == cty.String {
			return stdlib.Strlen(args[0])
		}
		return stdlib.Length(args[0])
	},
})

// tosetFunc makes a set of strings of a list, for for_each.
var tosetFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Set(cty.String)),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		t := args[0].Type()
		if !t.IsTupleType() && !t.IsListType() && !t.IsSetType() {
			return cty.NilVal, function.NewArgErrorf(0, "a list is required, found %s", t.FriendlyName())
		}
		var vals []cty.Value
		for it := args[0].ElementIterator(); it.Next(); {
			_, v := it.Element()
			if v.IsNull() || v.Type() != cty.String {
				return cty.NilVal, function.NewArgErrorf(0, "every element must be a string")
			}
			vals = append(vals, v)
		}
		if len(vals) == 0 {
			return cty.SetValEmpty(cty.String), nil
		}
		return cty.SetVal(vals), nil
	},
})

// cpusetFunc folds op over its arguments and returns the canonical list.
func cpusetFunc(op func(a, b cpulist.Set) cpulist.Set) function.Function {
	return function.New(&function.Spec{
		Params:   []function.Parameter{{Name: "first", Type: cty.String}},
		VarParam: &function.Parameter{Name: "more", Type: cty.String},
		Type:     function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			var acc cpulist.Set
			for i, a := range args {
				set := cpulist.New()
				if a.AsString() != "" { // facts have the empty set as ""
					var err error
					if set, err = cpulist.ParseStrict(a.AsString()); err != nil {
						return cty.NilVal, function.NewArgError(i, err)
					}
				}
				if i == 0 {
					acc = set
				} else {
					acc = op(acc, set)
				}
			}
			return cty.StringVal(cpulist.Format(acc)), nil
		},
	})
}

// gradientHint is ceil(6*bytes / (5*ranks)): in a ring all-reduce each message is
// bytes / ranks, and a fifth is added for control messages.
var gradientHint = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "bytes", Type: cty.Number}, {Name: "ranks", Type: cty.Number}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		n, err := counts(args, []string{"bytes", "ranks"}, []int64{0, 1})
		if err != nil {
			return cty.NilVal, err
		}
		num, den := new(big.Int).Mul(big.NewInt(6), n[0]), new(big.Int).Mul(big.NewInt(5), n[1])
		num.Add(num, den).Sub(num, big.NewInt(1)).Quo(num, den)
		return bigInt(num), nil
	},
})

// medianMargin is added to the median size by median_hint: an eighth, so that a
// hint sits a little above what is typical and not exactly on it.
const medianMargin = 8

// medianHint takes a histogram { size = count } and returns the smallest size that
// at least half of the messages do not exceed, plus an eighth, rounded up to 64
// bytes (a cache line, the granularity of inline data).
var medianHint = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "histogram", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		t := args[0].Type()
		if !t.IsMapType() && !t.IsObjectType() {
			return cty.NilVal, function.NewArgErrorf(0, `a histogram such as { "4KiB" = 900, "1MiB" = 20 } is required, found %s`, t.FriendlyName())
		}
		type bucket struct{ size, count int64 }
		var buckets []bucket
		var total int64
		for it := args[0].ElementIterator(); it.Next(); {
			k, v := it.Element()
			size, _, err := param.ParseBytes(k.AsString())
			if err != nil {
				return cty.NilVal, function.NewArgError(0, err)
			}
			if v.IsNull() || v.Type() != cty.Number {
				return cty.NilVal, function.NewArgErrorf(0, "the count of %q is not a number", k.AsString())
			}
			n, err := integer(v, 0, 1<<40)
			if err != nil {
				return cty.NilVal, function.NewArgErrorf(0, "the count of %q: %s", k.AsString(), err)
			}
			buckets = append(buckets, bucket{size, n})
			total += n
		}
		if total == 0 {
			return cty.NilVal, function.NewArgErrorf(0, "the histogram has no messages")
		}
		sort.Slice(buckets, func(i, j int) bool { return buckets[i].size < buckets[j].size })
		var below int64
		for _, b := range buckets {
			if below += b.count; 2*below >= total {
				with := b.size + (b.size+medianMargin-1)/medianMargin
				return cty.NumberIntVal((with + 63) / 64 * 64), nil
			}
		}
		return cty.NilVal, errors.New("the histogram has no median")
	},
})

// counts checks that every argument is a whole number of at least its minimum.
func counts(args []cty.Value, names []string, low []int64) ([]*big.Int, error) {
	out := make([]*big.Int, len(args))
	for i, a := range args {
		f := a.AsBigFloat()
		if f.IsInf() || !f.IsInt() {
			return nil, function.NewArgErrorf(i, "%s must be a whole number", names[i])
		}
		out[i], _ = f.Int(nil)
		if out[i].Cmp(big.NewInt(low[i])) < 0 {
			return nil, function.NewArgErrorf(i, "%s must be at least %d", names[i], low[i])
		}
	}
	return out, nil
}

func bigInt(n *big.Int) cty.Value { return cty.NumberVal(new(big.Float).SetInt(n)) }

// nearOptions are the second argument of cpus_near.
type nearOptions struct {
	cores, threads int64
	isolated       bool
}

func parseNearOptions(v cty.Value) (nearOptions, error) {
	o := nearOptions{threads: 1}
	known := []string{"cores", "threads_per_core", "isolated"}
	if !v.Type().IsObjectType() && !v.Type().IsMapType() {
		return o, fmt.Errorf("options such as { cores = 8, threads_per_core = 1 } are required, found %s", v.Type().FriendlyName())
	}
	for it := v.ElementIterator(); it.Next(); {
		k, opt := it.Element()
		name := k.AsString()
		if opt.IsNull() {
			continue
		}
		var err error
		switch {
		case name == "isolated" && opt.Type() == cty.Bool:
			o.isolated = opt.True()
		case name == "cores" && opt.Type() == cty.Number:
			o.cores, err = integer(opt, 1, cpulist.MaxCPUs)
		case name == "threads_per_core" && opt.Type() == cty.Number:
			o.threads, err = integer(opt, 1, 8)
		case contains(known, name):
			err = fmt.Errorf("found %s", describe(opt))
		default:
			return o, fmt.Errorf("there is no option %q; there are %s%s", name, quoteAll(known), suggest(name, known))
		}
		if err != nil {
			return o, fmt.Errorf("option %s: %w", name, err)
		}
	}
	if o.cores == 0 {
		return o, errors.New("the option cores is required")
	}
	return o, nil
}

// cpusNear is cpus_near(device, { cores, threads_per_core, isolated }): CPUs of the
// device's NUMA node. The node's cores are shared out evenly among its RDMA devices
// in PCI order, so that the answers for two of them never overlap. Offline CPUs are
// left out, isolated ones too unless asked for.
func cpusNear(f *node.Facts) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "device", Type: cty.String}, {Name: "options", Type: cty.DynamicPseudoType, AllowUnknown: true}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if !args[1].IsWhollyKnown() {
				return cty.UnknownVal(cty.String), nil
			}
			o, err := parseNearOptions(args[1])
			if err != nil {
				return cty.NilVal, function.NewArgError(1, err)
			}
			if f == nil {
				return cty.UnknownVal(cty.String), nil
			}
			cpus, err := near(f, args[0].AsString(), o)
			if err != nil {
				return cty.NilVal, err
			}
			return cty.StringVal(cpus), nil
		},
	})
}

func near(f *node.Facts, device string, o nearOptions) (string, error) {
	dev := findRDMA(f, device)
	if dev == nil {
		return "", function.NewArgError(0, missingDevice(f, device))
	}
	if dev.LocalCPUs == nil {
		return "", function.NewArgErrorf(0, "the local CPUs of %s are not known (%s)", device, why(f, "rdma."+device+".local_cpus"))
	}
	local, err := cpulist.ParseKernel(*dev.LocalCPUs)
	if err != nil {
		return "", err
	}
	usable := set(f.CPUs.Online)
	if !o.isolated {
		usable = usable.Difference(set(f.CPUs.Isolated))
	}
	local = local.Intersection(usable)
	cores := wholeCores(f, local)

	// Devices that share these CPUs, in PCI order; software devices have no address.
	var sharers []string
	for _, r := range f.RDMA {
		if r.LocalCPUs != nil && *r.LocalCPUs == *dev.LocalCPUs && (r.PCI != nil) == (dev.PCI != nil) {
			sharers = append(sharers, deref(r.PCI)+" "+r.Name)
		}
	}
	sort.Strings(sharers)
	slot := sort.SearchStrings(sharers, deref(dev.PCI)+" "+dev.Name)
	share := len(cores) / len(sharers)
	if int64(share) < o.cores {
		return "", function.NewArgErrorf(1, "%d cores are asked for, but the %d usable cores near %s (CPUs %s) are shared by %d RDMA devices, %d each",
			o.cores, len(cores), device, orNone(cpulist.Format(local)), len(sharers), share)
	}
	out := cpulist.New()
	for _, core := range cores[slot*share : slot*share+int(o.cores)] {
		cpus := core.List()
		if int64(len(cpus)) < o.threads {
			return "", function.NewArgErrorf(1, "%d threads per core are asked for, but core %s has %d usable", o.threads, cpulist.Format(core), len(cpus))
		}
		out = out.Union(cpulist.New(cpus[:o.threads]...))
	}
	return cpulist.Format(out), nil
}

// wholeCores groups cpus by core, in the order of each core's first CPU.
func wholeCores(f *node.Facts, cpus cpulist.Set) []cpulist.Set {
	var out []cpulist.Set
	taken := cpulist.New()
	for _, c := range cpus.List() {
		if taken.Contains(c) {
			continue
		}
		core := coreOf(f, c).Intersection(cpus)
		taken = taken.Union(core)
		out = append(out, core)
	}
	return out
}
