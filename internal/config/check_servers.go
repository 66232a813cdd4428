package config

import (
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// badURL does not show the URL: it may hold a password.
const badURL = "is no valid URL: percent-encode special characters in user and password"

func (c checker) redis() {
	const path = "redis"
	redis := c.config.Redis
	if redis.Mode == Standalone && !c.reported(path+".url") {
		c.redisURL(path, redis)
	}
	kind.CheckAddresses(under{c, path}, "sentinels", redis.Sentinels)
	kind.CheckAddresses(under{c, path}, "addrs", redis.Addrs)
	c.files(path, reflect.ValueOf(redis))
	c.tls(path+".tls", redis.TLS)
}

// redisURL allows in the URL what has no key of its own. The client's other
// URL options would change what the bridge relies on, its retries for one.
func (c checker) redisURL(path string, redis Redis) {
	key := path + ".url"
	u, err := url.Parse(redis.URL)
	if err != nil {
		c.add(key, badURL)
		return
	}
	database := strings.Trim(u.Path, "/")
	switch {
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		c.add(key, "has the scheme %q, allowed are redis, rediss and unix", u.Scheme)
		return
	case u.Scheme == "unix" && database == "":
		c.add(key, "has no path of a socket")
	case u.Scheme == "unix":
		database = ""
	case u.Hostname() == "":
		c.add(key, "has no host")
	}
	query := u.Query()
	if query.Has("db") {
		database = query.Get("db")
		query.Del("db")
	}
	if _, err := strconv.ParseUint(database, 10, 31); database != "" && err != nil {
		c.add(key, "has the database %q, must be a number", database)
	}
	for option := range query {
		c.add(key, "has the option %q, allowed is db; the others are keys of redis", option)
	}
	if _, inURL := u.User.Password(); inURL && redis.Password.IsSet() {
		c.add(path+".password", "the URL holds a password too, give one of them")
	}
	if u.User.Username() != "" && redis.Username != "" {
		c.add(path+".username", "the URL holds a user too, give one of them")
	}
}

func (c checker) sink(path string, sink Sink) {
	claim := c.config.Poller.ClaimTimeout
	if sink.PublishTimeout > claim/3 && !c.reported(path+".publish_timeout") && !c.reported("poller.claim_timeout") {
		key := path + ".publish_timeout"
		if !c.given(key) {
			key = "poller.claim_timeout"
		}
		c.add(key, "publish_timeout of sink %s is %s, at most a third of poller.claim_timeout (%s) is allowed",
			strings.TrimPrefix(path, "sinks."), formatDuration(sink.PublishTimeout), formatDuration(claim))
	}
	c.tls(path+".tls", sink.TLS)
	if settings := sink.Settings(""); settings != nil {
		c.files(path, reflect.ValueOf(sink))
		settings.Check(under{c, path})
	}
}

// under is what is wrong below a path, for who does not know where it is.
type under struct {
	checker
	path string
}

// Add implements [kind.Problems].
func (u under) Add(key, format string, args ...any) {
	u.add(strings.TrimSuffix(u.path+"."+key, "."), format, args...)
}

// Has implements [kind.Problems].
func (u under) Has(key string) bool { return u.reported(strings.TrimSuffix(u.path+"."+key, ".")) }

// files checks that the files can be read that the keys of a section name.
func (c checker) files(path string, section reflect.Value) {
	for _, f := range fieldsOf(section.Type()) {
		v := section.FieldByIndex(f.index)
		switch {
		case f.isFile:
			c.file(join(path, f.name), v.String())
		case v.Kind() == reflect.Pointer && !v.IsNil() && f.typ != reflect.TypeFor[*tlsclient.Files]():
			c.files(join(path, f.name), v.Elem())
		}
	}
}
