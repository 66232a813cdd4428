package message

// RateRequest takes messages from the rate of a topic or, if that is empty, of the
// whole queue; a negative number gives back what was not used.
type RateRequest struct {
	Topic string
	// Rate is the rate of all instances together, in messages per second.
	Rate, Messages int
}
