package drivers

import (
	"context"
	"errors"
	"testing"
)

func TestOnce(t *testing.T) {
	type key struct{}
	reads := 0
	fail := errors.New("busy")
	read := func(ctx context.Context, err error) (int, error) {
		return Once(ctx, key{}, func() (int, error) { reads++; return reads, err })
	}
	for _, ctx := range []context.Context{t.Context(), t.Context()} {
		if v, err := read(ctx, nil); err != nil || v != reads {
			t.Errorf("outside of a look: %d, %v after %d reads", v, err, reads)
		}
	}
	ctx := Look(t.Context())
	if _, err := read(ctx, fail); !errors.Is(err, fail) {
		t.Errorf("an error: %v", err)
	}
	first, err := read(ctx, nil)
	if second, err2 := read(ctx, fail); err != nil || err2 != nil || first != second || reads != 4 {
		t.Errorf("within a look: %d, %d, %v, %v after %d reads", first, second, err, err2, reads)
	}
	if v, err := read(Within(ctx), fail); err != nil || v != first || !Looking(ctx) {
		t.Errorf("within the same look: %d, %v", v, err)
	}
	if inner := Within(t.Context()); Looking(t.Context()) || !Looking(inner) {
		t.Error("no look where there was none")
	}
	if v, err := read(Look(ctx), nil); err != nil || v == first {
		t.Errorf("another look: %d, %v", v, err)
	}
}
