package reconcile

import (
	"errors"
	"testing"

	"github.com/rdmatune/rdmatune/apply"
)

// TestOutcomeOf: a setting is healed by a write alone, never by a target that was gone.
func TestOutcomeOf(t *testing.T) {
	failed := errors.New("no space left")
	for _, test := range []struct {
		step apply.Step
		err  error
		want outcome
	}{
		{apply.Written, nil, done}, {apply.Written, failed, done}, {apply.Failed, nil, refused}, {apply.Skipped, nil, skipped},
		{apply.Skipped, failed, skipped}, {apply.Deferred, nil, deferred}, {"", nil, deferred}, {"", failed, refused},
	} {
		if got := outcomeOf(test.step, test.err); got != test.want {
			t.Errorf("%q, %v: %d, want %d", test.step, test.err, got, test.want)
		}
	}
}
