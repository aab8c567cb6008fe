package drivers

import (
	"context"
	"sync"
)

// A look is what was read once for all observations of one look at a node.
type look struct {
	mu    sync.Mutex
	known map[any]any // guarded by mu
}

type lookKey struct{}

// Look returns a context of one look at a node: what Once reads within it is read one time.
// It must not outlive the look.
func Look(ctx context.Context) context.Context {
	return context.WithValue(ctx, lookKey{}, &look{known: map[any]any{}})
}

// Within returns a context of the look that ctx belongs to, or of a new one.
func Within(ctx context.Context) context.Context {
	if Looking(ctx) {
		return ctx
	}
	return Look(ctx)
}

// Looking reports whether ctx belongs to a look, so that Once keeps what it reads.
func Looking(ctx context.Context) bool {
	_, ok := ctx.Value(lookKey{}).(*look)
	return ok
}

// Once returns what read returns, and within one look what it returned the first time for
// key, which is of a type of the caller's own. Errors are not kept. Whoever gets the value
// must not change it.
func Once[T any](ctx context.Context, key any, read func() (T, error)) (T, error) {
	l, ok := ctx.Value(lookKey{}).(*look)
	if !ok {
		return read()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, ok := l.known[key].(T); ok {
		return v, nil
	}
	v, err := read()
	if err == nil {
		l.known[key] = v
	}
	return v, err
}
