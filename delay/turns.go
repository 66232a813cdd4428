package delay

import "github.com/delaybridge/delaybridge/internal/engine/store/turns"

// Turns is for package retry: the turns of the messages that it has delivered again in order.
func (c *Client) Turns() *turns.Turns { return turns.New(c.store, c.confirm) }
