package bench

import (
	"context"
	"errors"
)

// Loop runs both ends in this process: a server for one client on what accept
// returns, and a client with o on what dial returns. It ends both connections.
func Loop(ctx context.Context, accept, dial func(context.Context) (Conn, error), o Options) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The server must outlive an interrupt, so that the client can end properly.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	served := make(chan error, 1)
	go func() {
		c, err := accept(serving)
		if err != nil {
			cancel() // dial may wait for an answer that cannot come
			served <- err
			return
		}
		served <- serveOne(serving, c, o.Device, false).Err
	}()
	c, err := dial(ctx)
	if err != nil {
		stop()
		return Report{}, errors.Join(err, <-served)
	}
	r, err := Client(ctx, c, o)
	if err != nil {
		stop()
	}
	err = errors.Join(err, c.Close())
	if serverErr := <-served; err == nil {
		err = serverErr
	}
	return r, err
}
