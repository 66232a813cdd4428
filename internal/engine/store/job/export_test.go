package job

import "context"

// Find makes the job's next step, which is then to be done.
func (r *Run) Find(ctx context.Context, most int) error {
	for a := r.course.next(r.jobs.queue.Now(), most); a.kind != actionKeep; a = r.course.next(r.jobs.queue.Now(), most) {
		if _, err := r.do(ctx, a); err != nil {
			return err
		}
	}
	return nil
}
