package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// limitLeast is the smallest possible proto-max-bulk-len: a smaller body needs no
	// question.
	limitLeast = 1 << 20
	// limitDefault is the default of proto-max-bulk-len.
	limitDefault = 512 << 20
	// limitAge is how long an answer is valid, since the limit may change at any time.
	limitAge = time.Minute
)

// limit is the largest argument that a server accepts.
type limit struct {
	most    int
	askedAt time.Time
}

// checkSize refuses a body for which the server would end the connection, often before
// its reason arrives.
func (s *Sink) checkSize(topic string, size int) error {
	if size < limitLeast {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.root, s.timeout)
	defer cancel()
	server, err := s.serverOf(ctx, topic)
	if err != nil {
		return err
	}
	addr := server.Options().Addr
	s.mu.Lock()
	known := s.limits[addr]
	s.mu.Unlock()
	if time.Since(known.askedAt) > limitAge {
		most, err := askLimit(ctx, server)
		if err != nil {
			return err
		}
		known = limit{most, time.Now()}
		s.mu.Lock()
		s.limits[addr] = known
		s.mu.Unlock()
	}
	if size > known.most {
		return &tooLargeError{size, known.most}
	}
	return nil
}

// askLimit asks a server. If that does not tell, the default is assumed.
func askLimit(ctx context.Context, server *goredis.Client) (int, error) {
	const setting = "proto-max-bulk-len"
	settings, err := server.ConfigGet(ctx, setting).Result()
	_, isRefusal := refusals[code(err)]
	if isRefusal && code(err) != "NOPERM" || err != nil && !isReply(err) {
		return 0, fmt.Errorf("ask for %s: %w", setting, err)
	}
	if most, err := strconv.Atoi(settings[setting]); err == nil {
		return most, nil
	}
	return limitDefault, nil
}

// serverOf is the client of the server that holds the topic.
func (s *Sink) serverOf(ctx context.Context, topic string) (*goredis.Client, error) {
	switch client := s.client.(type) {
	case *goredis.Client:
		return client, nil
	case *goredis.ClusterClient:
		return client.MasterForKey(ctx, topic)
	default:
		return nil, errors.New("the client is of no known kind")
	}
}
