package config

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// badURL does not show the URL: it may hold a password.
const badURL = "is no valid URL: percent-encode special characters in user and password"

func (c checker) redis() {
	const path = "redis"
	redis := c.config.Redis
	if redis.Mode == Standalone && !c.reported(path+".url") {
		c.redisURL(path, redis)
	}
	c.addresses(path+".sentinels", redis.Sentinels)
	c.addresses(path+".addrs", redis.Addrs)
	c.file(path+".password_file", redis.PasswordFile)
	c.file(path+".sentinel_password_file", redis.SentinelPasswordFile)
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
	switch sink.Type {
	case message.NATS:
		c.nats(path, sink)
	case message.RabbitMQ:
		c.rabbitmq(path, sink)
	case message.Kafka:
		c.kafka(path, sink)
	}
}

// urls checks each of a sink's URLs and returns those that are right.
func (c checker) urls(path string, sink Sink, schemes ...string) []*url.URL {
	var valid []*url.URL
	key := path + ".url"
	if c.reported(key) {
		return nil
	}
	urls := sink.URLs()
	if len(urls) == 0 {
		c.add(key, "has no URL")
	}
	for _, text := range urls {
		u, err := url.Parse(text)
		switch {
		case err != nil:
			c.add(key, badURL)
		case !slices.Contains(schemes, u.Scheme):
			c.add(key, "has the scheme %q, allowed are %s", u.Scheme, strings.Join(schemes, ", "))
		case u.Hostname() == "":
			c.add(key, "has no host")
		default:
			valid = append(valid, u)
		}
	}
	return valid
}

func (c checker) nats(path string, sink Sink) {
	logins := 0
	for _, u := range c.urls(path, sink, "nats", "tls") {
		if u.User != nil {
			logins = 1
		}
	}
	login := sink.Login
	for _, given := range []bool{login.User != "", login.Token.IsSet(), login.CredsFile != "", login.NKeyFile != ""} {
		if given {
			logins++
		}
	}
	if logins > 1 {
		c.add(path, "has several logins, give one: in the url, user and password, token, creds_file or nkey_file")
	}
	c.password(path, login)
	c.file(path+".token_file", login.TokenFile)
	c.file(path+".creds_file", login.CredsFile)
	c.file(path+".nkey_file", login.NKeyFile)
}

// password checks a login by user and password.
func (c checker) password(path string, login Login) {
	if (login.User != "") != login.Password.IsSet() {
		c.add(path, "has only one of user and password, give both")
	}
	c.file(path+".password_file", login.PasswordFile)
}

func (c checker) rabbitmq(path string, sink Sink) {
	c.password(path, sink.Login)
	if sink.Auth == AuthExternal && sink.Login.User != "" {
		c.add(path+".user", "auth is external, whose login is the client certificate: give one of them")
	}
	for _, u := range c.urls(path, sink, "amqp", "amqps") {
		if u.User != nil && sink.Login.User != "" {
			c.add(path+".user", "the URL holds a login too, give one of them")
		}
		if u.Scheme == "amqp" && sink.TLS != nil {
			c.add(path+".url", "has the scheme amqp, which is without TLS, but tls is given: use amqps")
		}
	}
	if u, err := url.Parse(sink.Management); sink.Management != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "") {
		c.add(path+".management", "is no URL, give http://host:15672")
	}
	if len(sink.Exchange) > 255 {
		c.add(path+".exchange", "has %d bytes, allowed are 255", len(sink.Exchange))
	}
	if sink.Auth == AuthExternal && (sink.TLS == nil || sink.TLS.CertFile == "") {
		c.add(path+".auth", "external needs a client certificate: tls.cert_file and tls.key_file")
	}
}

func (c checker) kafka(path string, sink Sink) {
	c.addresses(path+".brokers", sink.Brokers)
	if sink.SASL == nil || c.reported(path+".sasl") {
		return
	}
	login := sink.SASL
	c.file(path+".sasl.password_file", login.PasswordFile)
	c.file(path+".sasl.token_file", login.TokenFile)
	hasPassword := login.Username != "" || login.Password.IsSet()
	switch {
	case login.Mechanism == SASLOAuthBearer && hasPassword:
		c.add(path+".sasl", "oauthbearer has a token, and neither username nor password")
		return
	case login.Mechanism == SASLOAuthBearer:
		if !login.Token.IsSet() {
			c.add(path+".sasl.token", "missing, give it or token_file")
		}
		return
	case login.Token.IsSet():
		c.add(path+".sasl.token", "is for the mechanism oauthbearer only")
	}
	if login.Username == "" {
		c.add(path+".sasl.username", "missing")
	}
	if !login.Password.IsSet() {
		c.add(path+".sasl.password", "missing, give it or password_file")
	}
}
