package control

import (
	"net"
	"sync"
)

// limitedConn gives its place back when it is closed.
type limitedConn struct {
	*net.UnixConn
	sem  chan struct{}
	once sync.Once
}

func (c *limitedConn) Close() error {
	err := c.UnixConn.Close()
	c.once.Do(func() { <-c.sem })
	return err
}
