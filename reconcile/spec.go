package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/apply"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// unapplied keeps a status from being healthy by the look at another spec's wants.
const unapplied = "the spec was loaded, and the first look with it is under way"

// adopt makes sp, which was loaded from its files just now, the spec that is kept.
func (l *Loop) adopt(sp *spec.Spec) { l.keep(sp, time.Now().UTC().Truncate(time.Second), false) }

// keep makes sp the spec that is kept. loaded is when it was loaded from its files; copied
// tells that this one comes from the copy in the state directory.
func (l *Loop) keep(sp *spec.Spec, loaded time.Time, copied bool) {
	l.spec, l.loaded = sp, loaded
	l.resolved = nil
	l.update(func(s *Status) {
		s.Spec = SpecStatus{Root: sp.Root, Digest: sp.Digest, Loaded: loaded, Copy: copied}
		s.Problems = []string{unapplied}
	})
}

// begin reads the spec and makes the first pass.
func (l *Loop) begin(ctx context.Context) error {
	doc, err := state.Load(l.c.Node.StateDir())
	if err != nil {
		return err
	}
	l.doc = doc
	sp, diags := l.load()
	switch {
	case !diags.HasErrors():
		if err := apply.CheckRoot(doc, sp.Root, l.c.Replace); err != nil {
			return err
		}
		l.adopt(sp)
		l.keepLastGood()
	case l.c.Attended:
		return errors.New(firstError(diags))
	default:
		if err := l.beginInvalid(sp, diags); err != nil {
			return err
		}
	}
	if l.c.OnBegin != nil {
		l.c.OnBegin()
	}
	l.why, l.must = AtStart, true
	l.pass(ctx)
	return nil
}

// beginInvalid begins with the last good spec of an earlier run, as that run would have gone
// on; without one with none, when there is something to leave as it is.
func (l *Loop) beginInvalid(sp *spec.Spec, diags hcl.Diagnostics) error {
	held, loaded, err := l.heldSpec(sp.Path)
	if err == nil {
		l.copied = held.Digest
		l.keep(held, loaded, true)
		said := []any{"spec", held.Root, "digest", held.Digest}
		if !loaded.IsZero() {
			said = append(said, "loaded", loaded)
		}
		l.log.Info("the last good spec is taken from its copy", said...)
		l.invalid(diags)
		return nil
	}
	if l.managed() == 0 {
		if !errors.Is(err, errNoLastGood) {
			l.log.Warn("the last good spec is not known", "error", err)
		}
		return errors.New(firstError(diags))
	}
	l.log.Error("the last good spec is not known", "error", err)
	l.invalid(diags)
	l.update(func(s *Status) { s.Problems = []string{unkept} })
	return nil
}

// unkept is what a loop says that was started with an invalid spec, and that does not know
// which one an earlier run kept.
const unkept = "nothing is healed until the spec is valid: what an earlier run has set stays as it is"

// managed counts the settings that the state has of this boot.
func (l *Loop) managed() int {
	n := 0
	for _, e := range l.doc.Entries {
		if e.BootID == l.c.BootID {
			n++
		}
	}
	return n
}

// load reads the spec's files. One without any workload, such as a file that is being
// written or was cut off by a full disk, is not taken as the wish to restore everything.
func (l *Loop) load() (*spec.Spec, hcl.Diagnostics) {
	sp, diags := l.c.Load()
	if !diags.HasErrors() && sp.Empty() {
		diags = diags.Append(&hcl.Diagnostic{Severity: hcl.DiagError, Summary: "The spec has no workload",
			Detail: "A daemon keeps nothing by it. To have the originals back, stop the daemon and run rdmatune destroy."})
	}
	return sp, diags
}

// restoresOnStop says what the spec wants of a stop, also one that no pass has looked at yet.
func (l *Loop) restoresOnStop() bool {
	if l.resolved != nil || l.spec == nil {
		return l.settings.RestoreOnStop
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	facts, err := l.c.Node.Facts(ctx)
	if err != nil {
		return l.settings.RestoreOnStop
	}
	r, _ := l.spec.Resolve(facts) // what of it does not fit the node is not asked here
	return r.Reconcile.RestoreOnStop
}

// reload reads the spec's files again and reports whether there is another spec now.
func (l *Loop) reload() bool {
	sp, diags := l.load()
	if diags.HasErrors() {
		l.invalid(diags)
		return false
	}
	was := ""
	l.update(func(s *Status) { was, s.Spec.Invalid = s.Spec.Invalid, "" })
	if was != "" {
		l.log.Info("spec valid again", "spec", sp.Root)
		now := time.Now().UTC().Truncate(time.Second)
		l.update(func(s *Status) {
			if s.Spec.Copy { // the files have it, too
				l.loaded, s.Spec.Loaded, s.Spec.Copy = now, now, false
			}
		})
	}
	if l.spec != nil && sp.Digest == l.spec.Digest && sp.Root == l.spec.Root {
		return was != ""
	}
	l.log.Info("spec loaded", "spec", sp.Root, "digest", sp.Digest)
	l.adopt(sp)
	l.keepLastGood()
	l.judge.forget()
	l.debts.forget()
	return true
}

// invalid keeps the last good spec, and says so once for each text.
func (l *Loop) invalid(diags hcl.Diagnostics) {
	text, news := firstError(diags), false
	l.update(func(s *Status) { news, s.Spec.Invalid = s.Spec.Invalid != text, text })
	switch {
	case !news:
	case l.spec == nil:
		l.log.Error("spec invalid: nothing is healed until it is valid", "error", text)
	default:
		l.log.Error("spec invalid: the last good one is kept", "error", text)
	}
}

// firstError is the first error with its place.
func firstError(diags hcl.Diagnostics) string {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		if d.Subject == nil {
			return d.Summary + ": " + d.Detail
		}
		return spec.Place(*d.Subject) + ": " + d.Summary + ": " + d.Detail
	}
	return "no error"
}
