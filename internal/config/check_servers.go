package config

import (
	"reflect"
	"strings"

	"github.com/delaybridge/delaybridge/internal/redisclient"
	"github.com/delaybridge/delaybridge/internal/sinks/kind"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

func (c checker) redis() {
	const path = "redis"
	redis := c.config.Redis
	if redis.Mode == Standalone && !c.reported(path+".url") {
		c.redisURL(path, redis)
	}
	kind.CheckAddresses(scopedChecker{c, path}, "sentinels", redis.Sentinels)
	kind.CheckAddresses(scopedChecker{c, path}, "addrs", redis.Addrs)
	c.files(path, reflect.ValueOf(redis))
	c.tls(path+".tls", redis.TLS)
}

func (c checker) redisURL(path string, redis Redis) {
	u, problems := redisclient.CheckURL(redis.URL)
	for _, problem := range problems {
		c.add(path+".url", "%s", problem)
	}
	if u == nil {
		return
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
		settings.Check(scopedChecker{c, path})
	}
}

// scopedChecker collects the problems below a path, for code that does not know the path.
type scopedChecker struct {
	checker
	path string
}

// Add implements [kind.Problems].
func (u scopedChecker) Add(key, format string, args ...any) {
	u.add(strings.TrimSuffix(u.path+"."+key, "."), format, args...)
}

// Has implements [kind.Problems].
func (u scopedChecker) Has(key string) bool {
	return u.reported(strings.TrimSuffix(u.path+"."+key, "."))
}

// files checks that the files can be read that the keys of a section name.
func (c checker) files(path string, section reflect.Value) {
	for _, f := range fieldsOf(section.Type()) {
		v := section.FieldByIndex(f.index)
		switch {
		case f.isFile:
			c.file(join(path, f.name), v.String())
		case v.Kind() == reflect.Pointer && !v.IsNil() && f.typ != reflect.TypeFor[*tlsclient.Files]():
			c.files(join(path, f.name), v.Elem())
		case v.Kind() == reflect.Map:
			for _, name := range v.MapKeys() {
				c.files(join(join(path, f.name), name.String()), v.MapIndex(name))
			}
		}
	}
}
