package access

import (
	"crypto/tls"
	"crypto/x509"
	"time"
)

// certificateSource stands before the names of callers with a certificate, so no issuer may have it.
const certificateSource = "certificate"

// byCertificate is the caller of a certificate that the listener has verified. The error is a [*Refusal].
func (k *known) byCertificate(leaf *x509.Certificate, now time.Time, limits *limiters) (*Caller, error) {
	if now.After(leaf.NotAfter) { // The connection is older.
		return nil, unauthorized("the client certificate has expired")
	}
	a := attributesOf(leaf)
	for _, attribute := range []string{"uri", "dns", "email", "cn"} {
		if values := a.values(attribute); len(values) > 0 && isName(values[0]) {
			return callerOf(k.certificates, a, certificateSource, values[0], identityOf(certificateSource, attribute, values[0]), limits)
		}
	}
	return nil, forbidden("the client certificate has no name: a URI, DNS name or e-mail address, or a common name")
}

// certificateOf is the client certificate of a connection, nil if there is none.
func certificateOf(state *tls.ConnectionState) *x509.Certificate {
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}

// attributesOf are the names in a certificate: first those that it is made for, then those of its subject.
func attributesOf(leaf *x509.Certificate) attributes {
	a := attributes{}
	add := func(name string, values ...string) {
		for _, value := range values {
			if value != "" {
				list, _ := a[name].([]any)
				a[name] = append(list, value)
			}
		}
	}
	for _, uri := range leaf.URIs {
		add("uri", uri.String())
	}
	add("dns", leaf.DNSNames...)
	add("email", leaf.EmailAddresses...)
	add("cn", leaf.Subject.CommonName)
	add("o", leaf.Subject.Organization...)
	add("ou", leaf.Subject.OrganizationalUnit...)
	return a
}
