package audit

import (
	"path"
	"slices"
)

// An override is a module that gives a variable a value by itself, below the
// environment and above files.
type override struct {
	name     string   // of the module
	modules  []string // globs of its file names
	variable string
	value    string
	why      string
}

var overrides = []override{
	{
		name: "NIXL", modules: []string{"libplugin_UCX*.so*", "libnixl*.so*"}, variable: "UCX_RNDV_THRESH", value: "inf",
		why: "it configures UCX by its API, below the environment: configuration files lose without a word",
	},
	{
		name: "UCXX", modules: []string{"libucxx*.so*", "ucxx*.so"}, variable: "UCX_RNDV_THRESH", value: "8192",
		why: "it configures UCX by its API, below the environment: configuration files lose without a word",
	},
}

// A rewriter changes its own process's environment at run time: what the process was
// started with is not what the library reads.
type rewriter struct {
	name      string
	modules   []string
	variables []string
}

var rewriters = []rewriter{{
	name: "DeepEP", modules: []string{"deep_ep_cpp*.so"},
	variables: []string{"NVSHMEM_IB_ENABLE_IBGDA", "NVSHMEM_IBGDA_NUM_RC_PER_PE", "NVSHMEM_QP_DEPTH"},
}}

// mappedAny reports whether the subject has mapped a file of one of the globs.
func (s *subject) mappedAny(globs []string) bool {
	return slices.ContainsFunc(s.mapped, func(file string) bool {
		return slices.ContainsFunc(globs, func(g string) bool {
			ok, err := path.Match(g, path.Base(file))
			return err == nil && ok
		})
	})
}

func (s *subject) loaded(o override) bool { return s.mappedAny(o.modules) }

// rewritten notes the variables that a module overwrites while the process runs.
func (s *subject) rewritten() {
	for _, r := range rewriters {
		if !s.mappedAny(r.modules) {
			continue
		}
		for _, name := range r.variables {
			if v := VariableByName(name); v != nil {
				s.find(Warning, v, "", "%s overwrites it in its own process: what the environment says is not what is read, and the value is not observable", r.name)
			}
		}
	}
}
