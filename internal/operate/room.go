package operate

import "github.com/delaybridge/delaybridge/internal/engine/store/inspect"

// RoomView is how much is taken of what may be.
type RoomView struct {
	Used   int64  `json:"used_bytes"`
	Limit  int64  `json:"limit_bytes"`
	FullAt string `json:"full_at,omitempty" format:"date-time" doc:"When the limit is reached, if use keeps growing as in the last ten minutes. Absent if it does not grow, or more than a day away."`
}

// ViewRoom is a room as programs see it; nil if there is none.
func ViewRoom(r *inspect.Room) *RoomView {
	if r == nil {
		return nil
	}
	return &RoomView{Used: r.Used, Limit: r.Limit, FullAt: Stamp(r.FullAt)}
}
