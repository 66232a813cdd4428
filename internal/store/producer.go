package store

// Producer is a queue as those see it who schedule messages and ask for them: the
// SDK, and people by the commands. Its verbs keep to "one call, one effect", see
// state.
type Producer struct{ *core }

// Producer is the producers' door.
func (q *Queue) Producer() *Producer { return &Producer{q.core} }
