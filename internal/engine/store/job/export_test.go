package job

import "context"

// Find makes the job's next step, which is then to be done.
func (r *Run) Find(ctx context.Context, most int) error { return r.find(ctx, &r.record, most) }
