package operate

import "github.com/delaybridge/delaybridge/internal/engine/store/inspect"

// RoomView is how much is taken of what may be.
type RoomView struct {
	Used   int64  `json:"used_bytes"`
	Limit  int64  `json:"limit_bytes"`
	FullAt string `json:"full_at,omitempty" format:"date-time" doc:"When all is taken, if it grows on as in the last ten minutes. Not there where it does not grow, or that is more than a day away."`
}

// ViewRoom is a room as programs see it; nil if there is none.
func ViewRoom(r *inspect.Room) *RoomView {
	if r == nil {
		return nil
	}
	return &RoomView{Used: r.Used, Limit: r.Limit, FullAt: Stamp(r.FullAt)}
}
