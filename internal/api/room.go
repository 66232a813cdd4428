package api

import "time"

// Room is how much is taken of what may be, in bytes.
type Room struct {
	Used, Limit int64
	// FullAt is when all is taken, if it grows on as in the last minutes; zero where that
	// is not to be expected.
	FullAt time.Time
}

// Rooms are those of a queue; nil where there is no limit, or nothing is known yet.
type Rooms struct {
	// Budget is the queue's own, Redis' that of its maxmemory.
	Budget, Redis *Room
}

// RoomView is how much is taken of what may be.
type RoomView struct {
	Used   int64  `json:"used_bytes"`
	Limit  int64  `json:"limit_bytes"`
	FullAt string `json:"full_at,omitempty" format:"date-time" doc:"When all is taken, if it grows on as in the last ten minutes. Not there where it does not grow, or that is more than a year away."`
}

func (r *Room) view() *RoomView {
	if r == nil {
		return nil
	}
	return &RoomView{Used: r.Used, Limit: r.Limit, FullAt: stamp(r.FullAt)}
}
