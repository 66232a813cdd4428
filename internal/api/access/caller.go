// Package access decides who may call the API, and to do what.
//
// A caller is known by a credential: a token of a file (tokens.go), a JWT of an issuer
// (issuer.go; package jwks has the keys) or a client certificate (certificate.go). What the
// last two say of a caller are its attributes; a list of lines says which attributes
// make which caller (lines.go). Each call is judged anew, so a role that is withdrawn counts at
// once.
//
// Once any kind of credential is configured, everybody needs one. Without, who calls from the
// host itself may do anything, and others may only look. Nothing here keeps, logs
// or returns a token: only its hash.
package access

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/time/rate"
)

// Role says what a caller may do.
type Role string

// The roles.
const (
	// Producer schedules, gets, cancels and reschedules single messages.
	Producer Role = "producer"
	// Viewer sees everything and changes nothing.
	Viewer Role = "viewer"
	// Operator may do everything.
	Operator Role = "operator"
)

var roles = []Role{Producer, Viewer, Operator}

// defaultRate is how many calls a second a caller may make.
const defaultRate = 500

// Caller is who calls.
type Caller struct {
	// Name is for logs and the audit.
	Name string
	Role Role
	// identity tells callers apart: names may be alike.
	identity string
	// queues and topics are those that it may use; empty means all.
	queues, topics []string
	limiter        *rate.Limiter
	isAnyone       bool
}

// IsAnyone reports whether the caller stands for all who call without a token.
func (c *Caller) IsAnyone() bool { return c.isAnyone }

// MayUse reports whether the caller may use the queue.
func (c *Caller) MayUse(queue string) bool {
	return len(c.queues) == 0 || slices.Contains(c.queues, queue)
}

// MaySee reports whether the caller may see and change messages of the topic.
func (c *Caller) MaySee(topic string) bool {
	return len(c.topics) == 0 || slices.Contains(c.topics, topic)
}

// Topics are those that the caller may see and change messages of; none means all.
func (c *Caller) Topics() []string { return c.topics }

// Identity is the caller's own, whatever its name: the hash of its token, or of the issuer and subject of its JWT, or
// of the name in its certificate; empty without any. It is no secret that lets anybody in, and belongs into no log all the same.
func (c *Caller) Identity() string { return c.identity }

// IsLimited reports whether there are queues or topics that the caller may not use.
func (c *Caller) IsLimited() bool { return len(c.queues) > 0 || len(c.topics) > 0 }

// SeesAllTopics reports whether no topic is kept from the caller.
func (c *Caller) SeesAllTopics() bool { return len(c.topics) == 0 }

// hasRightsOf reports whether both are the same caller with the same rights.
func (c *Caller) hasRightsOf(other *Caller) bool {
	return c.identity == other.identity && c.Name == other.Name && c.Role == other.Role &&
		slices.Equal(c.queues, other.queues) && slices.Equal(c.topics, other.topics)
}

// allowance is what a line of a file or a list gives a caller.
type allowance struct {
	role           Role
	name           string // empty: none is given
	queues, topics []string
	rate           int
}

func (a *allowance) newLimiter() *rate.Limiter { return rate.NewLimiter(rate.Limit(a.rate), a.rate) }

// parseAllowance reads
//
//	ROLE [name=NAME] [queues=A,B] [topics=X,Y] [rate=N]
//
// Its errors repeat no field that may be a part of a token.
func parseAllowance(fields []string) (a allowance, err error) {
	if len(fields) == 0 || !slices.Contains(roles, Role(fields[0])) {
		return a, errors.New("must have a role after the token: producer, viewer or operator")
	}
	a = allowance{role: Role(fields[0]), rate: defaultRate}
	for _, field := range fields[1:] {
		name, value, _ := strings.Cut(field, "=")
		list := slices.DeleteFunc(strings.Split(value, ","), func(s string) bool { return s == "" })
		switch {
		case value == "" || len(list) == 0:
			return a, fmt.Errorf("%q has no value", name)
		case name == "name":
			a.name = value
		case name == "queues":
			a.queues = list
		case name == "topics":
			a.topics = list
		case name == "rate":
			if a.rate, err = strconv.Atoi(value); err != nil || a.rate < 1 {
				return a, errors.New("rate must be a whole number of calls a second, 1 or more")
			}
		default: // It may be a part of a token with a space in it.
			return a, errors.New("has an unknown field: known are name=, queues=, topics= and rate=")
		}
	}
	return a, nil
}
