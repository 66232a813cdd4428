package command

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
)

// dueFlags say when a message is due; one of them is needed.
type dueFlags struct {
	In *span    `xor:"due" required:"" placeholder:"DURATION" help:"Due after this delay, by Redis' clock: 500ms, 5s, 30m, 2h, 1d, 1w."`
	At *instant `xor:"due" required:"" placeholder:"TIME" help:"Due at this time, RFC 3339: 2027-01-31T09:00:00Z."`
}

// when is the due time for the SDK.
func (f dueFlags) when() delay.When {
	if f.At != nil {
		return delay.At(time.Time(*f.At))
	}
	return delay.After(time.Duration(*f.In))
}

// from is the due time where the moment of the call is now.
func (f dueFlags) from(now time.Time) time.Time {
	if f.At != nil {
		return time.Time(*f.At)
	}
	return now.Add(time.Duration(*f.In))
}

// span is a duration with the units d and w, too.
type span time.Duration

// UnmarshalText reads a flag.
func (s *span) UnmarshalText(text []byte) error {
	d, err := config.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q %w", text, err)
	}
	*s = span(d)
	return nil
}

// shift is a duration with a sign.
type shift time.Duration

// UnmarshalText reads a flag.
func (s *shift) UnmarshalText(text []byte) error {
	d, err := config.ParseShift(string(text))
	if err != nil {
		return fmt.Errorf("%q %w", text, err)
	}
	*s = shift(d)
	return nil
}

// perSecond is a rate.
type perSecond int

// UnmarshalText reads a flag.
func (r *perSecond) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(strings.TrimSuffix(string(text), "/s"))
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a rate: give messages a second, as 500/s", text)
	}
	*r = perSecond(n)
	return nil
}

// instant is a time in RFC 3339.
type instant time.Time

// time is zero if the flag was not given.
func (i *instant) time() time.Time {
	if i == nil {
		return time.Time{}
	}
	return time.Time(*i)
}

// UnmarshalText reads a flag.
func (i *instant) UnmarshalText(text []byte) error {
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return fmt.Errorf("%q is not a time: give RFC 3339, as 2027-01-31T09:00:00Z or 2027-01-31T10:00:00+01:00", text)
	}
	*i = instant(t)
	return nil
}

// or is the duration, or another one if the flag was not given.
func (s *span) or(usual time.Duration) time.Duration {
	if s == nil {
		return usual
	}
	return time.Duration(*s)
}
