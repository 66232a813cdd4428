package access

import (
	"net/http"
	"slices"
	"strings"
)

// Headers that proxies set, of themselves or of who called them, and callers do not. A
// proxy that sets none of them cannot be told from a caller on its host.
var (
	proxyHeaders = []string{
		"forwarded", "via", "x-forwarded", "x-real-ip", "x-client-ip", "client-ip", "x-cluster-client-ip", "true-client-ip",
		"x-remote-ip", "x-remote-addr", "x-remote-user", "remote-user", "x-proxyuser-ip", "x-originating-ip", "x-coming-from",
		"proxy-client-ip", "wl-proxy-client-ip", "x-nf-client-connection-ip", "x-arr-log-id", "x-arr-ssl", "x-host", "x-scheme",
		"x-ssl-client-cert", "x-client-cert", "x-webauth-user", "cdn-loop", "ali-cdn-real-ip", "x-request-start",
	}
	proxyPrefixes = []string{
		"x-forwarded-", "x-original-", "x-auth-request-", "x-envoy-", "x-proxy-", "cf-", "cloudfront-", "fly-", "fastly-", "akamai-",
		"x-akamai-", "x-azure-", "x-amz-", "x-amzn-", "x-appengine-", "x-goog-", "x-vercel-", "x-sucuri-", "tailscale-", "x-pomerium-",
	}
)

// isForwarded reports whether a proxy speaks for somebody: a header that proxies set is
// there, whatever it says.
func isForwarded(headers http.Header) bool {
	for name := range headers {
		name = strings.ToLower(name)
		hasPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if slices.Contains(proxyHeaders, name) || slices.ContainsFunc(proxyPrefixes, hasPrefix) {
			return true
		}
	}
	return false
}
