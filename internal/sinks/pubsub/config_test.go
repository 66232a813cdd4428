package pubsub_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/sinks/pubsub"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config pubsub.Config
		want   string
	}{
		{pubsub.Config{Project: "My Shop"}, `project: "My Shop" is no ID of a project`},
		{pubsub.Config{Project: project, Requests: 257}, "topic_requests: 257, allowed are 1 to 256"},
		{pubsub.Config{Project: project, URL: "ftp://host"}, `url: has the scheme "ftp", allowed are https, http`},
		{pubsub.Config{Project: project, URL: "https://"}, "url: has no host"},
		{pubsub.Config{Project: project, URL: "https://user:password@host"}, "url: holds a login"},
		{pubsub.Config{Project: project, URL: "https://host/v1"}, "url: has more than a host and a port"},
		{pubsub.Config{Project: project, URL: "http://host", CredentialsFile: "account.json"}, "credentials_file: is of no use with an http:// url"},
		{pubsub.Config{Project: project, PublishTimeout: -1}, "publish_timeout: -1ns is negative"},
	} {
		_, err := pubsub.New(c.config)
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "password")
	}
}

// The commands allow the topics of the queues, and nothing else where IAM can say so.
func TestGrants(t *testing.T) {
	t.Parallel()
	lines := pubsub.Config{Project: "shop"}.Grants(kind.Use{Topics: []string{"bills", "order-*", "x-*"}})
	const member = " --member=serviceAccount:bridge@shop.iam.gserviceaccount.com --role=roles/pubsub.publisher"
	require.Equal(t, []string{
		"gcloud pubsub topics add-iam-policy-binding bills --project=shop" + member,
		"# order-* is no topic: name those it stands for, one command each, or allow all of the project",
		"gcloud projects add-iam-policy-binding shop" + member,
		"# x-* is no topic: name those it stands for, one command each, or allow all of the project",
	}, lines[2:])
}
