package bench

import (
	"context"
	"errors"
)

// Loop runs both ends in this process: a server for one client on what accept
// returns, and a client with o on what dial returns. It ends both connections.
func Loop(ctx context.Context, accept, dial func(context.Context) (Conn, error), o Options) (Report, error) {
	return LoopArms(ctx, accept, 1, func(ctx context.Context) ([]Arm, error) {
		c, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return []Arm{{Conns: []Conn{c}}}, nil
	}, o)
}

// LoopArms is Loop for arms, which dial makes, with conns connections in all.
func LoopArms(ctx context.Context, accept func(context.Context) (Conn, error), conns int, dial func(context.Context) ([]Arm, error), o Options) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The server must outlive an interrupt, so that the client can end properly.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	served := make(chan error, conns)
	for range conns {
		go func() {
			c, err := accept(serving)
			if err != nil {
				cancel() // dial may wait for an answer that cannot come
				served <- err
				return
			}
			served <- serveOne(serving, c, ServeOptions{Device: o.Device, Alloc: o.Alloc}, false).Err
		}()
	}
	wait := func() (err error) {
		for range conns {
			serverErr := <-served
			if serving.Err() != nil && errors.Is(serverErr, context.Canceled) {
				continue // it was told to stop, and why is said by who told it
			}
			err = errors.Join(err, serverErr)
		}
		return err
	}
	arms, err := dial(ctx)
	if err != nil {
		stop()
		if serverErr := wait(); serverErr != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = serverErr // for which dial was given up
		} else {
			err = errors.Join(err, serverErr)
		}
		return Report{}, err
	}
	r, err := Run(ctx, arms, o)
	if err != nil {
		stop()
	}
	for _, a := range arms {
		for _, c := range a.Conns {
			err = errors.Join(err, c.Close())
		}
	}
	if serverErr := wait(); err == nil {
		err = serverErr
	}
	return r, err
}
