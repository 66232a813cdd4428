package message

// RateRequest asks for so many messages of a rate, for those of a topic or, where it is
// empty, of the whole queue; below 0 it gives back what was not used.
type RateRequest struct {
	Topic string
	// Rate is how many messages a second there are, of all instances together.
	Rate, Messages int
}
