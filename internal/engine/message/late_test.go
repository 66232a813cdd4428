package message_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

func TestJudgeLate(t *testing.T) {
	t.Parallel()
	at := time.Now()
	maybe := message.Attempts{Begun: 1, MaybeOut: 1}
	for name, c := range map[string]struct {
		then     message.LateAction
		late     time.Duration
		attempts message.Attempts
		want     message.Verdict
		isLate   bool
	}{
		"publish":        {then: message.LatePublish, late: 48 * time.Hour},
		"nothing said":   {late: 48 * time.Hour},
		"in time":        {then: message.LateDead, late: time.Hour},
		"dead":           {then: message.LateDead, late: 2*time.Hour + 3*time.Minute, isLate: true, want: message.Verdict{Verb: message.VerbDeadLetter, Reason: "late: more than 1h"}},
		"dead, a little": {then: message.LateDead, late: time.Hour + time.Second, isLate: true, want: message.Verdict{Verb: message.VerbDeadLetter, Reason: "late: more than 1h"}},
		"dead, a copy may be out": {
			then: message.LateDead, late: 2 * time.Hour, attempts: maybe, isLate: true,
			want: message.Verdict{Verb: message.VerbDeadLetter, Reason: "late: more than 1h", Published: true, Attempts: maybe},
		},
		"drop":                    {then: message.LateDrop, late: 2 * time.Hour, isLate: true, want: message.Verdict{Verb: message.VerbDrop, Reason: "late: more than 1h"}},
		"drop, in time":           {then: message.LateDrop, late: time.Minute},
		"drop, a copy may be out": {then: message.LateDrop, late: 2 * time.Hour, attempts: maybe},
	} {
		m := message.ClaimedMessage{Message: message.Message{DueAt: at}, Attempts: c.attempts}
		verdict, isLate := message.Late{After: time.Hour, Then: c.then}.Judge(&m, at.Add(c.late))
		require.Equal(t, c.isLate, isLate, name)
		if isLate {
			require.Equal(t, c.want, verdict, name)
		}
	}
}
