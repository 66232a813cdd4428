package redial

// Start has a connection dialled if there is none and no pause is on, and
// does not wait for it.
func (r *Redialer[C]) Start() { _, _, _ = r.look(false) }
