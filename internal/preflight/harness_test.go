package preflight_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/preflight"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// look checks a configuration, and returns what it has found in one area.
func look(t *testing.T, area string, topics []string, format string, args ...any) []check.Finding {
	t.Helper()
	text := fmt.Sprintf(format, args...)
	// The machine may stand still for longer than Redis is given by default.
	if area != "bridge" {
		text = strings.Replace(text, "redis: {", "redis: {dial_timeout: 20s, timeout: 20s, ", 1)
	}
	cfg, err := config.Parse([]byte(text), nil)
	require.NoError(t, err)
	flight, err := preflight.New(cfg, topics)
	require.NoError(t, err)
	defer flight.Close()
	steps, err := flight.Steps()
	require.NoError(t, err)
	var findings []check.Finding
	for _, result := range check.Run(t.Context(), steps) {
		assert.Less(t, result.Took, check.StepLimit, "%s must end in time", result.Subject)
		if result.Area == area {
			findings = append(findings, result.Findings...)
		}
	}
	for _, f := range findings {
		for name, text := range map[string]string{"code": f.Code, "subject": f.Subject, "what": f.What, "why": f.Why, "remedy": f.Remedy} {
			assert.NotEmpty(t, text, "%s of %+v", name, f)
		}
	}
	return findings
}

// codes are the kinds of what was found, with the levels, sorted.
func codes(findings []check.Finding) []string {
	list := []string{}
	for _, f := range findings {
		list = append(list, f.Level.String()+" "+f.Code)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// require1 is the finding of that kind.
func require1(t *testing.T, findings []check.Finding, code string) check.Finding {
	t.Helper()
	i := slices.IndexFunc(findings, func(f check.Finding) bool { return f.Code == code })
	require.GreaterOrEqual(t, i, 0, "no %s in %+v", code, findings)
	return findings[i]
}

func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}
