// Package access decides who may call the API, and to do what.
//
// With a file of tokens everybody needs one of them. Without, who calls from the
// host itself may do anything, and others may only look. Nothing here keeps, logs
// or returns a token: only its hash.
package access

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
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

const (
	// leastToken is how many bytes a token has at least.
	leastToken = 8
	// mostTokens is how many tokens a file may have: each call is compared with all.
	mostTokens = 1000
	// defaultRate is how many calls a second a token may make.
	defaultRate = 500
	// hashedPrefix begins a token that the file has as its hash only.
	hashedPrefix = "sha256:"
)

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

// Identity is the caller's own, whatever its name: the hash of its token, empty without tokens. It is no secret
// that lets anybody in, and belongs into no log all the same.
func (c *Caller) Identity() string { return c.identity }

// IsLimited reports whether there are queues or topics that the caller may not use.
func (c *Caller) IsLimited() bool { return len(c.queues) > 0 || len(c.topics) > 0 }

// SeesAllTopics reports whether no topic is kept from the caller.
func (c *Caller) SeesAllTopics() bool { return len(c.topics) == 0 }

// Tokens are the callers by the hashes of their tokens.
type Tokens struct {
	hashes  [][sha256.Size]byte
	callers []*Caller
}

// Parse reads a file of tokens: a line a token, with its role and what it is limited
// to; empty lines and those that begin with # are comments.
//
//	TOKEN ROLE [name=NAME] [queues=A,B] [topics=X,Y] [rate=N]
//
// The error joins one of each line that is wrong, with its number and without the token.
func Parse(content []byte) (*Tokens, error) {
	t := &Tokens{}
	var problems []error
	lines := map[[sha256.Size]byte]int{}
	scanner := bufio.NewScanner(bytes.NewReader(content))
	for number := 1; scanner.Scan(); number++ {
		fields := strings.Fields(scanner.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		hash, caller, err := parseLine(fields)
		if twice := lines[hash]; err == nil && twice > 0 {
			err = fmt.Errorf("the token is also in line %d", twice)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("line %d: %w", number, err))
			continue
		}
		lines[hash] = number
		t.hashes, t.callers = append(t.hashes, hash), append(t.callers, caller)
	}
	if err := scanner.Err(); err != nil {
		problems = append(problems, err)
	}
	switch {
	case len(problems) > 0:
	case len(t.callers) == 0:
		problems = append(problems, errors.New("has no token"))
	case len(t.callers) > mostTokens:
		problems = append(problems, fmt.Errorf("has %d tokens, allowed are %d", len(t.callers), mostTokens))
	}
	return t, errors.Join(problems...)
}

func parseLine(fields []string) (hash [sha256.Size]byte, caller *Caller, err error) {
	if hash, err = hashOf(fields[0]); err != nil {
		return hash, nil, err
	}
	if len(fields) < 2 || !slices.Contains(roles, Role(fields[1])) {
		return hash, nil, errors.New("must have a role after the token: producer, viewer or operator")
	}
	caller = &Caller{
		Name: fields[1] + "-" + hex.EncodeToString(hash[:3]), Role: Role(fields[1]), identity: hex.EncodeToString(hash[:]),
		limiter: rate.NewLimiter(defaultRate, defaultRate),
	}
	for _, field := range fields[2:] {
		name, value, _ := strings.Cut(field, "=")
		list := slices.DeleteFunc(strings.Split(value, ","), func(s string) bool { return s == "" })
		switch {
		case value == "" || len(list) == 0:
			return hash, nil, fmt.Errorf("%q has no value", name)
		case name == "name":
			caller.Name = value
		case name == "queues":
			caller.queues = list
		case name == "topics":
			caller.topics = list
		case name == "rate":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return hash, nil, errors.New("rate must be a whole number of calls a second, 1 or more")
			}
			caller.limiter = rate.NewLimiter(rate.Limit(n), n)
		default: // It may be a part of a token with a space in it.
			return hash, nil, errors.New("has an unknown field: known are name=, queues=, topics= and rate=")
		}
	}
	return hash, caller, nil
}

// hashOf is a token's hash, which the file may have in its place.
func hashOf(token string) (hash [sha256.Size]byte, err error) {
	if text, ok := strings.CutPrefix(token, hashedPrefix); ok {
		if n, err := hex.Decode(hash[:], []byte(text[:min(len(text), hex.EncodedLen(len(hash)))])); err != nil ||
			n != len(hash) || len(text) != hex.EncodedLen(len(hash)) {
			return hash, errors.New("must have sha256: and 64 hexadecimal digits")
		}
		return hash, nil
	}
	if len(token) < leastToken {
		return hash, fmt.Errorf("the token must have %d bytes or more", leastToken)
	}
	return sha256.Sum256([]byte(token)), nil
}

// caller is whose token it is, nil if it is unknown. It takes equally long in each case.
func (t *Tokens) caller(token string) (found *Caller) {
	hash := sha256.Sum256([]byte(token))
	for i := range t.hashes {
		if subtle.ConstantTimeCompare(hash[:], t.hashes[i][:]) == 1 {
			found = t.callers[i]
		}
	}
	return found
}
