package access

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	// leastToken is how many bytes a token has at least.
	leastToken = 8
	// mostTokens is how many tokens a file may have: each call is compared with all.
	mostTokens = 1000
	// hashedPrefix begins a token that the file has as its hash only.
	hashedPrefix = "sha256:"
)

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
	given, err := parseAllowance(fields[1:])
	if err != nil {
		return hash, nil, err
	}
	name := cmp.Or(given.name, string(given.role)+"-"+hex.EncodeToString(hash[:3]))
	return hash, &Caller{Name: name, Role: given.role, identity: hex.EncodeToString(hash[:]), queues: given.queues, topics: given.topics, limiter: given.newLimiter()}, nil
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
