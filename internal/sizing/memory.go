package sizing

import "math/bits"

// MessageBytes is what a waiting message takes in Redis' memory: an entry of a sorted set and one
// of a hash, each with its slot in a table, and two copies of the id. It is Redis 7.0's layout with
// the allocator of Debian, which wastes most: an image of Redis' own takes up to 30 bytes less.
func (p Plan) MessageBytes() float64 {
	const dictEntry, tables = 24, 2
	return float64(2*allocated(stringBytes(p.ID))+allocated(stringBytes(p.storedBytes()))+2*allocated(dictEntry)) +
		skiplistNode() + tables*p.slotBytes()
}

// storedBytes is the length of what the hash has of a message: package message has the format.
func (p Plan) storedBytes() int {
	const fixed, lengths = 30, 2 // version, stamp and token; that of the topic, and the count of the headers
	const perHeader, usualHeader = 2, 40
	return fixed + lengths + p.Topic + p.Headers + p.Headers/usualHeader*perHeader + p.Body
}

// slotBytes is a message's part of a table, which doubles when it is full.
func (p Plan) slotBytes() float64 {
	const pointer = 8
	each := p.waiting() / float64(p.shards())
	if each < 1 {
		return pointer
	}
	return pointer * float64(uint64(1)<<bits.Len64(uint64(each)-1)) / each
}

// skiplistNode is the mean size of one: a quarter of each level has a further one.
func skiplistNode() (mean float64) {
	const first, level, quarter, levels = 24, 16, 0.25, 8
	part := 1 - quarter
	for n := 1; n <= levels; n++ {
		mean += part * float64(allocated(first+n*level))
		part *= quarter
	}
	return mean
}

// stringBytes is a string of Redis with its header and its end.
func stringBytes(length int) int {
	switch {
	case length < 1<<5:
		return length + 2
	case length < 1<<8:
		return length + 4
	case length < 1<<16:
		return length + 6
	default:
		return length + 10
	}
}

// allocated is what jemalloc gives for so many bytes: its classes are 16 bytes apart, and from
// 128 bytes on there are four for each doubling.
func allocated(n int) int {
	const quantum, classes = 16, 2
	step := max(quantum, 1<<(bits.Len(uint(n-1))-1)>>classes) //nolint:gosec // a length
	return (n + step - 1) / step * step
}
