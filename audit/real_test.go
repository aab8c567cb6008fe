package audit

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// texts are values of all the kinds that people write.
var texts = []string{"16384", "16K", "16k", "16KB", "16KiB", "4M", "inf", "auto", "0x4000", "010", "-1", "-2", "16KBxyz", "16 K", " 5", "1.5K", "16q", "1T", "", "99999999999999999999"}

// tool runs a library's own tool with one variable set, away from the user's files.
func tool(t *testing.T, dir, variable, value string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !strings.HasPrefix(name, "UCX_") && !strings.HasPrefix(name, "OMPI_") && name != "HOME" {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "HOME="+t.TempDir())
	if variable != "" {
		cmd.Env = append(cmd.Env, variable+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v (packages openmpi-bin and ucx-utils): %v\n%s", command, err, out)
	}
	return string(out)
}

// TestOpenMPIReads holds the parser to Open MPI itself.
func TestOpenMPIReads(t *testing.T) {
	value := regexp.MustCompile(`btl_tcp_eager_limit:value:([0-9]+)`)
	for _, text := range texts {
		out := tool(t, t.TempDir(), "OMPI_MCA_btl_tcp_eager_limit", text, "ompi_info", "--param", "btl", "tcp", "--level", "9", "--parsable")
		m := value.FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("ompi_info shows no eager limit:\n%.300s", out)
		}
		if got := parseMCA(text, true).String(); got != m[1] {
			t.Errorf("Open MPI reads %q as %s, we as %s", text, m[1], got)
		}
	}
}

// ucxValue is what ucx_info shows of a variable: a number in its own units, or a word.
func ucxValue(t *testing.T, out, variable string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + variable + `=(\S*)$`).FindStringSubmatch(out)
	if m == nil {
		return "fails"
	}
	for i, unit := range []string{"K", "M", "G", "T"} {
		if digits, ok := strings.CutSuffix(m[1], unit); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return strconv.FormatInt(n<<(10*(i+1)), 10)
		}
	}
	return m[1]
}

// TestUCXReads holds the parser and the precedence to UCX itself.
func TestUCXReads(t *testing.T) {
	for _, text := range texts {
		got := parseUCX(text, true)
		ours := got.String()
		if got.Rejected != "" {
			ours = "fails"
		}
		if real := ucxValue(t, tool(t, t.TempDir(), "UCX_RNDV_THRESH", text, "ucx_info", "-cf"), "UCX_RNDV_THRESH"); ours != real {
			t.Errorf("UCX reads %q as %s, we as %s", text, real, ours)
		}
	}
	// A specific name in a file stands above a generic one in the environment.
	dir := t.TempDir()
	const conf = "UCX_RC_VERBS_TX_MIN_INLINE=32\nUCX_RC_RX_QUEUE_LEN=64\n"
	if err := os.WriteFile(dir+"/ucx.conf", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	out := tool(t, dir, "UCX_IB_TX_MIN_INLINE", "128", "ucx_info", "-cf")
	r, err := Processes(t.Context(), machine(t, []string{"UCX_IB_TX_MIN_INLINE=128"}, []string{ucp}, txtar.File{Name: "job/ucx.conf", Data: []byte(conf)}), []int{100}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"UCX_RC_VERBS_TX_MIN_INLINE", "UCX_RC_VERBS_RX_QUEUE_LEN", "UCX_DC_MLX5_TX_MIN_INLINE", "UCX_UD_VERBS_TX_MIN_INLINE", "UCX_DC_MLX5_RX_QUEUE_LEN"} {
		real := ucxValue(t, out, name)
		s := &subject{known: true, env: map[string]setting{"UCX_IB_TX_MIN_INLINE": {"128", "environment"}}, report: newReport(), modules: r.Modules,
			place: place{cwd: dir}, readFile: os.ReadFile, texts: map[string]string{}}
		l := LibraryByID("ucx")
		v := VariableByName(name)
		if got := s.decide(v, s.candidates(l, v, s.files(l))).Parsed.String(); got != real {
			t.Errorf("%s is %s in UCX, %s for us", name, real, got)
		}
	}
	// Defaults are those of the release that is installed here.
	plain := tool(t, t.TempDir(), "", "", "ucx_info", "-cf")
	checked := 0
	for i := range Table {
		v := &Table[i]
		real := ucxValue(t, plain, v.Name)
		if v.Library != "ucx" || real == "fails" {
			continue // generic names have no value of their own
		}
		checked++
		if got := v.defaultValue().String(); got != real {
			t.Errorf("the default of %s is %s in UCX, %s in the table", v.Name, real, got)
		}
	}
	if checked < 10 {
		t.Errorf("ucx_info shows %d of the variables", checked)
	}
}
