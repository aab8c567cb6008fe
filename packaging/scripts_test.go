package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A sandbox runs a maintainer script on directories of its own, with programs that only
// note how they are called.
type sandbox struct {
	dir   string
	boot  string            // this boot's id
	exits map[string]int    // of programs that fail
	says  map[string]string // shell commands that programs run
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox{dir: t.TempDir(), boot: strings.TrimSpace(string(boot)), exits: map[string]int{}, says: map[string]string{}}
	s.write(t, "run/systemd/system/a.unit", "")
	return s
}

func (s *sandbox) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run returns the calls that the script made, what it printed, and whether it succeeded.
func (s *sandbox) run(t *testing.T, script string, args ...string) (calls, said string, ok bool) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("debian", script))
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	for _, path := range []string{"/var/lib/rdmatune", "/run/rdmatune", "/run/systemd/system", "/etc/default/rdmatune"} {
		text = strings.ReplaceAll(text, path, s.dir+path)
	}
	s.write(t, script, text)
	for _, name := range []string{"systemctl", "deb-systemd-helper", "deb-systemd-invoke", "rdmatune"} {
		s.write(t, "bin/"+name, "#!/bin/sh\necho "+name+" \"$@\" >> "+s.dir+"/calls\n"+s.says[name]+"\nexit "+
			strconv.Itoa(s.exits[name])+"\n")
	}
	s.write(t, "calls", "")
	cmd := exec.Command("dash", append([]string{filepath.Join(s.dir, script)}, args...)...)
	cmd.Env = []string{"PATH=" + filepath.Join(s.dir, "bin") + ":/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	list, readErr := os.ReadFile(filepath.Join(s.dir, "calls"))
	if readErr != nil {
		t.Fatal(readErr)
	}
	return string(list), string(out), err == nil
}

func (s *sandbox) has(name string) bool {
	_, err := os.Lstat(filepath.Join(s.dir, name))
	return err == nil
}

// A service is what systemd and the administrator have made of the unit. The programs of
// its sandbox change it as the real ones do.
type service struct{ active, enabled string }

// sandbox returns one in which the unit is as s says, and a function that returns how it is
// by now.
func (s service) sandbox(t *testing.T) (*sandbox, func() service) {
	t.Helper()
	b := newSandbox(t)
	b.write(t, "active", s.active)
	b.write(t, "enabled", s.enabled)
	b.says["systemctl"] = `[ "$1" != is-active ] || cat DIR/active`
	b.says["deb-systemd-helper"] = `case "$*" in
*was-enabled*) case "$(cat DIR/enabled)" in enabled | "") exit 0 ;; *) exit 1 ;; esac ;;
"enable "*) [ "$(cat DIR/enabled)" = masked ] || echo enabled > DIR/enabled ;;
esac`
	b.says["deb-systemd-invoke"] = `case "$1 $(cat DIR/enabled) $(cat DIR/active)" in
stop*) [ "$(cat DIR/active)" = failed ] || echo inactive > DIR/active ;;
"start enabled "* | "restart enabled "* | "restart "*" active") echo active > DIR/active ;;
*) echo "it is disabled or masked, not starting it" >&2 ;;
esac`
	for name, text := range b.says {
		b.says[name] = strings.ReplaceAll(text, "DIR", b.dir)
	}
	return b, func() service {
		var now service
		for name, into := range map[string]*string{"active": &now.active, "enabled": &now.enabled} {
			text, err := os.ReadFile(filepath.Join(b.dir, name))
			if err != nil {
				t.Fatal(err)
			}
			*into = strings.TrimSpace(string(text))
		}
		return now
	}
}

// TestServiceStays: whatever happens to the package while it is there, the service is
// afterwards as the administrator left it.
func TestServiceStays(t *testing.T) {
	type call []string // a script with its arguments
	ways := map[string][]call{
		"upgrade":                     {{"prerm", "upgrade", "0.2.0"}, {"postrm", "upgrade", "0.2.0"}, {"postinst", "configure", "0.1.0"}},
		"the same version again":      {{"prerm", "upgrade", "0.1.0"}, {"postrm", "upgrade", "0.1.0"}, {"postinst", "configure", "0.1.0"}},
		"an upgrade that is refused":  {{"prerm", "upgrade", "0.2.0"}, {"postinst", "abort-upgrade", "0.2.0"}},
		"an upgrade that is undone":   {{"prerm", "upgrade", "0.2.0"}, {"postrm", "upgrade", "0.2.0"}, {"postrm", "abort-upgrade", "0.1.0"}, {"postinst", "abort-upgrade", "0.2.0"}},
		"a removal that is refused":   {{"prerm", "remove"}, {"postinst", "abort-remove"}},
		"refused twice":               {{"prerm", "remove"}, {"postinst", "abort-remove"}, {"prerm", "remove"}, {"postinst", "abort-remove"}},
		"a conflict that is undone":   {{"prerm", "deconfigure", "in-favour", "other", "1"}, {"postinst", "abort-deconfigure", "in-favour", "other", "1"}},
		"removed and installed again": {{"prerm", "remove"}, {"postrm", "remove"}, {"postinst", "configure", "0.1.0"}},
		"configured again":            {{"postinst", "configure", "0.1.0"}},
	}
	for _, at := range []service{
		{"active", "enabled"}, {"inactive", "enabled"}, {"inactive", "disabled"}, {"inactive", "masked"}, {"active", "disabled"},
	} {
		for name, calls := range ways {
			t.Run(at.active+", "+at.enabled+"/"+name, func(t *testing.T) {
				s, now := at.sandbox(t)
				want := at
				if at == (service{"active", "disabled"}) && calls[0][0] == "prerm" && calls[0][1] == "remove" {
					want.active = "inactive" // started by hand, and stopped with the package
				}
				for _, c := range calls {
					if _, said, ok := s.run(t, c[0], c[1:]...); !ok {
						t.Fatalf("%v: %s", c, said)
					}
				}
				if got := now(); got != want {
					t.Errorf("it was %+v and is %+v, want %+v", at, got, want)
				}
				if s.has("run/rdmatune.stopped") || s.has("var/lib/rdmatune/removed") {
					t.Error("a mark of the removal is still there")
				}
			})
		}
	}
}

func TestPostinst(t *testing.T) {
	for _, c := range []struct {
		name, active string
		args         []string
		want         string // what is done to the daemon, "" for nothing
	}{
		{"installed", "inactive", []string{"configure", ""}, "start"},
		{"upgraded while it runs", "active", []string{"configure", "0.1.0"}, "restart"},
		{"upgraded after it failed", "failed", []string{"configure", "0.1.0"}, "restart"},
		{"upgraded while it is to be started again", "activating", []string{"configure", "0.1.0"}, "restart"},
		{"upgraded while it is being stopped", "deactivating", []string{"configure", "0.1.0"}, ""},
		{"upgraded while it is stopped", "inactive", []string{"configure", "0.1.0"}, ""},
		{"installed again after a boot without it", "removed", []string{"configure", "0.1.0"}, "start"},
		{"an upgrade that was refused", "inactive", []string{"abort-upgrade", "0.2.0"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := service{c.active, "enabled"}
			if c.active == "removed" {
				at.active = "inactive"
			}
			s, _ := at.sandbox(t)
			if c.active == "removed" {
				for _, script := range []string{"prerm", "postrm"} {
					if _, said, ok := s.run(t, script, "remove"); !ok || said != "" {
						t.Fatalf("removal: ok %v, said %q", ok, said)
					}
				}
				if err := os.Remove(filepath.Join(s.dir, "run/rdmatune.stopped")); err != nil { // the boot
					t.Fatal(err)
				}
			}
			calls, said, ok := s.run(t, "postinst", c.args...)
			if !ok || said != "" || !strings.Contains(calls, "deb-systemd-helper enable rdmatune.service\n") {
				t.Errorf("ok %v, said %q, calls:\n%s", ok, said, calls)
			}
			want := "deb-systemd-invoke " + c.want + " rdmatune.service\n"
			if done := strings.Contains(calls, "deb-systemd-invoke"); done != (c.want != "") || done && !strings.Contains(calls, want) {
				t.Errorf("want %q, calls:\n%s", c.want, calls)
			}
		})
	}
	s := newSandbox(t)
	s.exits["deb-systemd-invoke"] = 1
	if _, said, ok := s.run(t, "postinst", "configure", ""); !ok || !strings.Contains(said, "systemctl status rdmatune.service says why") {
		t.Errorf("a daemon that does not start: ok %v, said %q", ok, said)
	}
}

func TestPrerm(t *testing.T) {
	const destroy = "rdmatune destroy --auto-approve\n"
	for _, c := range []struct {
		name, file, options string
		fails               int
		ok, destroyed       bool
		said                string
	}{
		{"nothing managed", "", "", 0, true, false, ""},
		{"of an earlier boot", `"boot_id": "00000000-0000-0000-0000-000000000000"`, "RDMATUNE_DESTROY_ON_REMOVE=1\n", 0, true, false, ""},
		{"in force", `"boot_id": "BOOT"`, "", 0, true, false, "the tuning stays in force"},
		{"in force, to be undone", `"boot_id": "BOOT"`, "RDMATUNE_DESTROY_ON_REMOVE=1\n", 0, true, true, "restoring"},
		{"in force, with options that no shell could read", `"boot_id": "BOOT"`, "RDMATUNE_VAR_a=b (c\nRDMATUNE_DESTROY_ON_REMOVE=\"1\"\n", 0, true, true, "restoring"},
		{"in force, with blanks and another system's line ends", `"boot_id": "BOOT"`, "  RDMATUNE_DESTROY_ON_REMOVE=1\t\r\n", 0, true, true, "restoring"},
		{"in force, no longer to be undone", `"boot_id": "BOOT"`, "RDMATUNE_DESTROY_ON_REMOVE=1\nRDMATUNE_DESTROY_ON_REMOVE=0\n", 0, true, false, "stays in force"},
		{"in force, the option as a comment", `"boot_id": "BOOT"`, "#RDMATUNE_DESTROY_ON_REMOVE=1\n", 0, true, false, "stays in force"},
		{"in force, and cannot be undone", `"boot_id": "BOOT"`, "RDMATUNE_DESTROY_ON_REMOVE=1\n", 4, false, true, "so the package stays"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSandbox(t)
			s.exits["rdmatune"] = c.fails
			if c.file != "" {
				s.write(t, "var/lib/rdmatune/state.json", strings.ReplaceAll(c.file, "BOOT", s.boot)+"\n")
			}
			s.write(t, "etc/default/rdmatune", c.options)
			calls, said, ok := s.run(t, "prerm", "remove")
			if ok != c.ok || strings.Contains(calls, destroy) != c.destroyed || !strings.Contains(said, c.said) || c.said == "" && said != "" {
				t.Errorf("ok %v, said %q, calls:\n%s", ok, said, calls)
			}
			if !strings.HasPrefix(calls, "systemctl is-active rdmatune.service\ndeb-systemd-invoke stop rdmatune.service\n") {
				t.Errorf("not stopped first; calls:\n%s", calls)
			}
		})
	}
	s := newSandbox(t)
	if calls, said, ok := s.run(t, "prerm", "upgrade", "0.2.0"); !ok || calls != "" || said != "" {
		t.Errorf("upgrade: ok %v, said %q, calls:\n%s", ok, said, calls)
	}
}

func TestPostrm(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		stays            bool
	}{
		{"nothing managed", "state.json", `{"version": 1}`, false},
		{"of an earlier boot", "state.json", `"boot_id": "00000000-0000-0000-0000-000000000000"`, false},
		{"in force", "state.json", `"boot_id": "BOOT"`, true},
		{"of an apply that crashed", "journal.jsonl", `{"boot_id":"BOOT"}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSandbox(t)
			s.write(t, "var/lib/rdmatune/"+c.file, strings.ReplaceAll(c.text, "BOOT", s.boot)+"\n")
			s.write(t, "run/rdmatune/lock", "")
			_, said, ok := s.run(t, "postrm", "purge")
			if !ok || s.has("var/lib/rdmatune") != c.stays || s.has("run/rdmatune") != c.stays || strings.Contains(said, "stays") != c.stays {
				t.Errorf("ok %v, said %q, state there %v", ok, said, s.has("var/lib/rdmatune"))
			}
		})
	}
	s := newSandbox(t)
	s.write(t, "var/lib/rdmatune/state.json", "{}")
	calls, _, ok := s.run(t, "postrm", "remove")
	if !ok || !strings.Contains(calls, "daemon-reload") || !s.has("var/lib/rdmatune") {
		t.Errorf("remove: ok %v, calls:\n%s", ok, calls)
	}
}
