package preflight

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// expiresSoon is how long before its end a certificate is reported, unless a third of its
// life is less: one that lives for a day is renewed every day, and nothing is wrong with it.
const expiresSoon = 30 * 24 * time.Hour

// own returns the problems of a configuration that is valid.
func own(cfg *config.Config) []check.Finding {
	return slices.Concat(queueFiles(cfg), listener(cfg), times(cfg), lates(cfg), certificates(cfg))
}

// queueFiles are the problems of queue files.
func queueFiles(cfg *config.Config) (findings []check.Finding) {
	for _, p := range cfg.FileErrors() {
		findings = append(findings, check.Finding{
			Level: check.Error, Code: "queue_file", Subject: p.File, What: p.Error(),
			Why:    "a bridge that starts now has none of the queues of this file, and their messages wait",
			Remedy: "correct the file; a running bridge reads it by itself",
		})
	}
	return findings
}

// listener is who may reach the API, and the files of secrets.
func listener(cfg *config.Config) []check.Finding {
	admin := cfg.Admin
	var findings []check.Finding
	warn := func(code, subject, what, why, remedy string) {
		findings = append(findings, check.Finding{Level: check.Warning, Code: code, Subject: subject, What: what, Why: why, Remedy: remedy})
	}
	tokens := admin.Auth.TokensFile
	if isOpen := admin.Listen != "" && !isLoopback(admin.Listen); isOpen && !admin.Auth.NeedsCredential() {
		warn("admin_open", "admin.listen", "the API can be reached from elsewhere at "+admin.Listen+", without a token",
			"everybody there can read waiting messages, even bodies", "admin.auth.tokens_file: FILE, or admin.auth.issuers, or admin.listen: 127.0.0.1:8080 with admin.probes for the orchestrator")
	} else if isOpen && admin.TLS == nil {
		warn("admin_plain", "admin.listen", "tokens travel to "+admin.Listen+" in the clear",
			"whoever reads one may use it", "admin.tls: {cert_file: …, key_file: …}, or a proxy that ends TLS on this machine")
	}
	secrets := map[string]string{"admin.auth.tokens_file": tokens, "encryption.keys": cfg.Encryption.Keys}
	if admin.TLS != nil {
		secrets["admin.tls.key_file"] = admin.TLS.KeyFile
	}
	for _, key := range slices.Sorted(maps.Keys(secrets)) {
		name := secrets[key]
		info, err := os.Stat(name)
		if name != "" && err == nil && info.Mode().Perm()&0o007 != 0 {
			warn("file_rights", key, fmt.Sprintf("%s has the mode %o", name, info.Mode().Perm()),
				"every user of this machine can read it", "chmod 600 "+name)
		}
	}
	return findings
}

// isLoopback reports whether only the host itself reaches an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// times are timeouts that do not fit each other.
func times(cfg *config.Config) []check.Finding {
	var findings []check.Finding
	warn := func(subject, what, why, remedy string) {
		findings = append(findings, check.Finding{Level: check.Warning, Code: "timeouts", Subject: subject, What: what, Why: why, Remedy: remedy})
	}
	// A lease is renewed at least every max_sleep, by a call that may have to dial.
	slowest := cfg.Poller.MaxSleep + cfg.Redis.DialTimeout + cfg.Redis.Timeout
	if slowest > 2*cfg.Poller.Lease {
		warn("poller.lease", fmt.Sprintf("it is %v, and its renewal may take %v (max_sleep, redis.dial_timeout, redis.timeout)", cfg.Poller.Lease, slowest),
			"after one slow answer of Redis the shards go to another instance, which publishes their claims again",
			fmt.Sprintf("poller.lease: %v, or a lower redis.timeout", slowest.Round(time.Second)))
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Sinks)) {
		if timeout := cfg.Sinks[name].PublishTimeout; timeout > cfg.DrainTimeout {
			warn("drain_timeout", fmt.Sprintf("it is %v, and publish_timeout of sink %s is %v", cfg.DrainTimeout, name, timeout),
				"if it stops while the broker is slow, messages that may have arrived are published again",
				fmt.Sprintf("drain_timeout: %v, and let the supervisor wait as long", timeout+5*time.Second))
		}
	}
	return findings
}

// lates are queues that would not publish what a takeover delays.
func lates(cfg *config.Config) []check.Finding {
	var findings []check.Finding
	takeover := cfg.Poller.Lease + cfg.Poller.ClaimTimeout
	for _, name := range slices.Sorted(maps.Keys(cfg.Queues)) {
		late := cfg.Queues[name].Late
		if late.Then == message.LatePublish || late.After >= takeover {
			continue
		}
		findings = append(findings, check.Finding{
			Level: check.Warning, Code: "late", Subject: "queues." + name + ".late.after",
			What:   fmt.Sprintf("it is %v, and an instance that dies delays its claims by up to %v", late.After, takeover),
			Why:    "a crash is enough for messages to be dropped or buried instead of published (late.then: " + string(late.Then) + ")",
			Remedy: fmt.Sprintf("queues.%s.late.after: %v, or a lower poller.claim_timeout", name, takeover),
		})
	}
	return findings
}

// certificates are those that end soon or have ended, and TLS that trusts everybody.
func certificates(cfg *config.Config) []check.Finding {
	var findings []check.Finding
	files := map[string]string{}
	client := func(key string, tls *tlsclient.Files) {
		if tls == nil {
			return
		}
		files[key+".ca_file"], files[key+".cert_file"] = tls.CAFile, tls.CertFile
		if tls.InsecureSkipVerify {
			findings = append(findings, check.Finding{
				Level: check.Warning, Code: "tls_unverified", Subject: key,
				What:   "insecure_skip_verify is true",
				Why:    "whoever is in between can pose as the server, and gets the login and all messages",
				Remedy: key + ".ca_file: FILE with the CA that signed the server's certificate, and server_name if the name differs",
			})
		}
	}
	client("redis.tls", cfg.Redis.TLS)
	for _, name := range slices.Sorted(maps.Keys(cfg.Sinks)) {
		client("sinks."+name+".tls", cfg.Sinks[name].TLS)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Outbox)) {
		client("outbox."+name+".tls", cfg.Outbox[name].TLS)
	}
	if tls := cfg.Admin.TLS; tls != nil {
		files["admin.tls.cert_file"], files["admin.tls.client_ca_file"] = tls.CertFile, tls.ClientCAFile
	}
	for name, issuer := range cfg.Admin.Auth.Issuers {
		files["admin.auth.issuers."+name+".ca_file"] = issuer.CAFile
	}
	for _, key := range slices.Sorted(maps.Keys(files)) {
		findings = append(findings, ends(key, files[key])...)
	}
	return findings
}

// ends is the finding of a file whose first certificate ends soon or has ended.
func ends(key, name string) []check.Finding {
	if name == "" {
		return nil
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil // The configuration was loaded with it a moment ago.
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	left := time.Until(certificate.NotAfter)
	f := check.Finding{
		Level: check.Warning, Code: "certificate", Subject: key,
		What:   fmt.Sprintf("%s expires on %s", name, certificate.NotAfter.UTC().Format(time.DateOnly)),
		Why:    "after that, connections with it fail",
		Remedy: "renew it; files are read again at each connect, without a restart",
	}
	switch {
	case left > min(expiresSoon, certificate.NotAfter.Sub(certificate.NotBefore)/3):
		return nil
	case left < 0:
		f.Level, f.What, f.Why = check.Error, fmt.Sprintf("%s expired on %s", name, certificate.NotAfter.UTC().Format(time.DateOnly)), "connections with it fail"
	}
	return []check.Finding{f}
}
