package outbox

import "context"

// operate works on one batch of operations.
func (l *lane) operate(context.Context, outlook, evidence) (more bool, err error) {
	return false, nil
}
