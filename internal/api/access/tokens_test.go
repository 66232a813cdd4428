package access

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	hash := sha256.Sum256([]byte("kept as its hash"))
	tokens, err := Parse([]byte("# comment\n\n  abcdefgh producer name=shop queues=orders,mails topics=a.b,c\r\nsha256:" + hex.EncodeToString(hash[:]) + " operator\n"))
	require.NoError(t, err)
	shop := tokens.caller("abcdefgh")
	require.NotNil(t, shop)
	assert.Equal(t, "shop", shop.Name)
	assert.True(t, shop.MayUse("orders") && shop.MayUse("mails") && !shop.MayUse("other"))
	assert.True(t, shop.MaySee("a.b") && shop.MaySee("c") && !shop.MaySee("d") && !shop.SeesAllTopics())
	operator := tokens.caller("kept as its hash")
	require.NotNil(t, operator)
	assert.Equal(t, Operator, operator.Role)
	assert.True(t, operator.MayUse("any") && operator.MaySee("any") && operator.SeesAllTopics())
	assert.Equal(t, "operator-"+hex.EncodeToString(hash[:3]), operator.Name)
	for _, wrong := range []string{"", "abcdefg", "abcdefghi", "sha256:" + hex.EncodeToString(hash[:])} {
		assert.Nil(t, tokens.caller(wrong), "%q", wrong)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for content, says := range map[string]string{
		"":                                   "has no token",
		"# only\n":                           "has no token",
		"secret-1":                           "line 1: must have a role",
		"\nsecret-1 boss":                    "line 2: must have a role after the token: producer, viewer or operator",
		"producer secret-1":                  "line 1: must have a role",
		"secret producer":                    "line 1: the token must have 8 bytes or more",
		"secret-1 viewer queues=":            `line 1: "queues" has no value`,
		"secret-1 viewer queues=,":           `line 1: "queues" has no value`,
		"secret-1 viewer rate=0":             "line 1: rate must be a whole number",
		"secret-1 viewer queue=a":            "line 1: has an unknown field",
		"secret-1 viewer\nsecret-1 operator": "line 2: the token is also in line 1",
		"sha256:secret viewer":               "line 1: must have sha256: and 64 hexadecimal digits",
	} {
		_, err := Parse([]byte(content))
		require.ErrorContains(t, err, says, "%q", content)
		assert.NotContains(t, err.Error(), "secret")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("secret-1 viewer name=a queues=b topics=c rate=1\nsha256:00 operator"))
	f.Fuzz(func(t *testing.T, content []byte) {
		tokens, err := Parse(content)
		if err == nil && len(tokens.callers) == 0 {
			t.Fatal("no token and no error")
		}
	})
}

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:8080": true, "[::1]": true, "localhost": true, "LOCALHOST.:80": true, "127.9.9.9": true, "[::ffff:127.0.0.1]:1": true,
		"": false, "10.0.0.1:1": false, "localhost.evil": false, "evil": false, "127.0.0.1.evil:80": false, "[::]:1": false, "0.0.0.0": false,
	} {
		assert.Equal(t, want, isLoopback(address), "%q", address)
	}
}
