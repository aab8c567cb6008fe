package audit

import (
	"path"
	"slices"
	"strings"
)

// A Library is one communication library, or rdmatune's own transport.
type Library struct {
	ID   string
	Name string
	// Prefixes start the names of its environment variables.
	Prefixes []string
	// Modules are globs of the file names of its shared objects.
	Modules []string
	// Release says that the file names of its shared objects carry its release; those of
	// others end in the version of their interface, if in anything (libucp.so.0.0.0).
	Release bool
	// Note is said where its hint is expressed or not.
	Note string
	// files lists its configuration files, strongest first.
	files func(p place) []file
	// filesFirst says that files win over the environment; nil means never.
	filesFirst func(env map[string]string) bool
}

// Libraries are those that are audited, in the order of output.
var Libraries = []*Library{
	{ID: "rdmatune", Name: "rdmatune", Prefixes: []string{"RDMA_LOW_LATENCY_HINT", "RDMATUNE_"}},
	{
		ID: "ucx", Name: "UCX", Prefixes: []string{"UCX_"}, Modules: []string{"libucp.so*", "libuct.so*", "libucs.so*", "libuct_ib.so*"}, files: ucxFiles,
	},
	{
		ID: "ucc", Name: "UCC", Prefixes: []string{"UCC_"}, Modules: []string{"libucc.so*", "libucc_tl_ucp.so*"}, files: uccFiles,
		Note: "carries messages over UCX: UCC_UCX_X is read for UCX_X, and UCX_X stands where it is not set",
	},
	{
		ID: "nccl", Name: "NCCL", Prefixes: []string{"NCCL_"}, Modules: []string{"libnccl.so*", "librccl.so*"}, Release: true, files: ncclFiles,
		Note: "collectives have no threshold by size: NCCL_PROTO is for all sizes, and only a tuner plugin decides by size",
	},
	{ID: "ompi", Name: "Open MPI", Prefixes: []string{"OMPI_MCA_"}, Modules: []string{"libmpi.so*", "libopen-pal.so*"}, files: ompiFiles},
	{
		ID: "libfabric", Name: "libfabric", Prefixes: []string{"FI_"}, Modules: []string{"libfabric.so*"}, files: fabricFiles,
		filesFirst: func(env map[string]string) bool {
			v := strings.ToLower(env["FI_PREFER_SYSCONFIG"])
			return slices.Contains([]string{"1", "true", "yes", "on"}, v)
		},
	},
	{
		ID: "nvshmem", Name: "NVSHMEM", Prefixes: []string{"NVSHMEM_"}, Modules: []string{"libnvshmem*.so*", "nvshmem_transport_*.so*"}, Release: true, files: nvshmemFiles,
		filesFirst: func(map[string]string) bool { return true },
		Note:       "has no threshold by size",
	},
	{ID: "mooncake", Name: "Mooncake", Prefixes: []string{"MC_"}, Modules: []string{"libtransfer_engine*.so*", "engine.*.so", "mooncake*.so*"}, Note: "has no threshold by size: MC_SLICE_SIZE cuts messages, and does not choose a path"},
}

// LibraryByID returns a library, nil when there is none of that id.
func LibraryByID(id string) *Library {
	i := slices.IndexFunc(Libraries, func(l *Library) bool { return l.ID == id })
	if i < 0 {
		return nil
	}
	return Libraries[i]
}

// owns reports whether name is in the library's part of the environment.
func (l *Library) owns(name string) bool {
	return slices.ContainsFunc(l.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// LibraryOf returns the library that a mapped file belongs to, nil for any other file.
func LibraryOf(file string) *Library {
	base := path.Base(file)
	for _, l := range Libraries {
		for _, glob := range l.Modules {
			if ok, err := path.Match(glob, base); err == nil && ok {
				return l
			}
		}
	}
	return nil
}

// A Variable is one setting of a library: a row of Table.
type Variable struct {
	Library  string // its id
	Name     string // environment variable
	FileKey  string // name in the library's configuration file, "" when it reads none
	API      string // what a program calls instead
	HCL      string // attribute of the spec that it stands for, "" for none
	Unit     string // "bytes", "count", "switch", "text"
	Default  string
	Scope    string // what it is per
	Boundary string // which sizes a threshold includes
	Doc      string
	read     parser
	// fallback is the generic name that counts where this one is not set anywhere: a
	// specific name in a file stands above a generic one in the environment.
	fallback string
	// express gives the value for a hint of so many bytes; nil where the variable does
	// not express it.
	express func(hint int64) string
}

// sizes reports whether the value is a number of bytes.
func (v *Variable) sizes() bool { return v.Unit == "bytes" }

// Read returns what the library makes of text.
func (v *Variable) Read(text string) Parsed { return v.read(text, v.sizes()) }

// Hint reports whether the variable expresses the hint.
func (v *Variable) Hint() bool { return v.express != nil }

// For is the text that expresses a hint of so many bytes in v, "" where none does: 0 is
// explicitly none, which is no threshold.
func (v *Variable) For(hint int64) string {
	if v.express == nil || hint == 0 && v.Library != "rdmatune" {
		return ""
	}
	return v.express(hint)
}

// VariableByName returns the row for an environment variable, nil when there is none.
func VariableByName(name string) *Variable { return byName[name] }

var byName = func() map[string]*Variable {
	m := make(map[string]*Variable, len(Table))
	for i := range Table {
		m[Table[i].Name] = &Table[i]
	}
	return m
}()
