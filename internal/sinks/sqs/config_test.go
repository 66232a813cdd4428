package sqs_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/sinks/sqs"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config sqs.Config
		want   string
	}{
		{sqs.Config{Account: "42"}, `account: "42" is no account, give its 12 digits in quotes`},
		{sqs.Config{Requests: 257}, "queue_requests: 257, allowed are 1 to 256"},
		{sqs.Config{URL: "ftp://host"}, `url: has the scheme "ftp", allowed are https, http`},
		{sqs.Config{URL: "https://"}, "url: has no host"},
		{sqs.Config{URL: "https://user:password@host"}, "url: holds a login"},
		{sqs.Config{Region: "eu-central-1", Profile: "nobody"}, "nobody"},
	} {
		_, err := sqs.New(c.config)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "password")
	}
}

// A policy allows the topics of the queues, and nothing else.
func TestGrants(t *testing.T) {
	t.Parallel()
	lines := sqs.Config{Region: "eu-central-1", Account: "123456789012"}.Grants(kind.Use{Topics: []string{"order-*", "bills.fifo"}})
	var text []string
	for _, line := range lines {
		if !strings.HasPrefix(line, "#") {
			text = append(text, line)
		}
	}
	var got any
	require.NoError(t, json.Unmarshal([]byte(strings.Join(text, "\n")), &got))
	require.Equal(t, map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{
		"Effect":   "Allow",
		"Action":   []any{"sqs:GetQueueUrl", "sqs:SendMessage", "sqs:GetQueueAttributes"},
		"Resource": []any{"arn:aws:sqs:eu-central-1:123456789012:order-*", "arn:aws:sqs:eu-central-1:123456789012:bills.fifo"},
	}}}, got)
}
