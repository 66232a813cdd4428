package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestIdentityErrors: what is wrong with issuers and certificates is named by its key and line.
func TestIdentityErrors(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	const good = `url: "https://a.example", audiences: [a], callers: ["sub=* viewer"]`
	tls := fmt.Sprintf("tls: {cert_file: %s, key_file: %s, client_ca_file: %s}, ", certs.ServerCert, certs.ServerKey, certs.CAFile)
	for admin, want := range map[string]string{
		`auth: {issuers: {corp: {` + good + `}}}`:                                                               "",
		tls + `auth: {certificates: [cn=a viewer]}`:                                                             "",
		strings.Replace(tls, "}", ", client_certs: optional}", 1) + `auth: {certificates: ["cn=a viewer"]}`:     "",
		`auth: {certificates: [cn=a viewer]}`:                                                                   "admin.auth.certificates: needs admin.tls.client_ca_file",
		tls + `auth: {certificates: [viewer]}`:                                                                  "admin.auth.certificates: line 1: must begin with ATTRIBUTE=VALUE",
		`auth: {issuers: {corp: {}}}`:                                                                           "admin.auth.issuers.corp.url: missing",
		`auth: {issuers: {corp: {url: "http://a.example", audiences: [a], callers: ["sub=* viewer"]}}}`:         "admin.auth.issuers.corp.url: must be https",
		`auth: {issuers: {corp: {url: "https://a.example", callers: ["sub=* viewer"]}}}`:                        "admin.auth.issuers.corp.audiences: missing",
		`auth: {issuers: {corp: {url: "https://a.example", audiences: [a]}}}`:                                   "admin.auth.issuers.corp.callers: missing",
		`auth: {issuers: {corp: {url: "http://a.example", callers: [viewer]}}}`:                                 "admin.auth.issuers.corp.callers: line 1: must begin with ATTRIBUTE=VALUE",
		`auth: {issuers: {corp: {` + good + `, algorithms: [HS256]}}}`:                                          `admin.auth.issuers.corp.algorithms: "HS256" is not one of`,
		`auth: {issuers: {corp: {` + good + `, leeway: 6m}}}`:                                                   "admin.auth.issuers.corp.leeway",
		`auth: {issuers: {corp: {` + good + `, jwks_file: /nonexistent/keys}}}`:                                 "admin.auth.issuers.corp.jwks_file: open /nonexistent/keys",
		`auth: {issuers: {corp: {` + good + `}, other: {` + good + `}}}`:                                        "admin.auth.issuers.other.url: \"https://a.example\" is the url of corp",
		`auth: {issuers: {corp: {` + good + `, secret: x}}}`:                                                    "admin.auth.issuers.corp.secret: unknown key",
		"tls: {cert_file: " + certs.ServerCert + ", key_file: " + certs.ServerKey + ", client_certs: optional}": "client_certs: optional needs client_ca_file",
	} {
		cfg, err := Parse([]byte("queues: {orders: {sink: events}}\nsinks: {events: {type: nats, url: \"nats://127.0.0.1:1\"}}\nadmin: {"+admin+"}\n"), nil)
		if want == "" {
			require.NoError(t, err, admin)
			assert.True(t, cfg.Admin.Auth.NeedsCredential())
			continue
		}
		require.ErrorContains(t, err, want, admin)
		require.ErrorContains(t, err, "line 3", admin)
	}
}
