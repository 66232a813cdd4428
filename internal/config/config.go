// Package config reads the bridge's configuration: a YAML file, environment
// variables over it, defaults below it, and the checks that no type can make.
//
// A file is taken wholly or not at all: every problem is found and reported at
// once, as `line N: key.path: what is wrong`, or with the variable's name
// instead of the line where an environment variable gave the value. What the
// bridge would refuse at its start, [Load] refuses.
//
// The struct tags are the one description of a key: its name (yaml), default,
// allowed values (enum, min, max), the variants of its section that know it
// (only), and its sentence in the JSON Schema (doc). Loading, printing and the
// schema all read them. The package opens no connection and starts nothing.
package config

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
	"github.com/delaybridge/delaybridge/internal/tlsserver"
)

// Config is a whole configuration, complete and checked when it comes from [Load].
type Config struct {
	Redis  Redis            `yaml:"redis" doc:"The Redis that holds the waiting messages."`
	Queues map[string]Queue `yaml:"queues" doc:"The delay queues, by name. Needed, unless there are queue_files."`
	Sinks  map[string]Sink  `yaml:"sinks" required:"true" doc:"The brokers to publish to, by name."`
	// Outbox has the name "default" where the section is one object.
	Outbox map[string]Outbox `yaml:"outbox" single:"default" doc:"The database whose outbox is relayed; or several, by name. Without this section there is none."`
	Inlets map[string]Inlet  `yaml:"inlets" doc:"Topics of brokers whose messages say what to schedule, cancel and reschedule, by name: see docs/inlet.md. Without this section there are none."`
	// QueueFiles are merged into Queues.
	QueueFiles map[string]QueueFiles `yaml:"queue_files" doc:"Files in which others declare queues, by a name for them: see docs/queues.md. Without this section there are none."`
	Admin      Admin                 `yaml:"admin" doc:"The HTTP listeners for health and metrics."`
	Encryption Encryption            `yaml:"encryption" doc:"Encrypts bodies in Redis and in the table of an outbox."`
	Poller     Poller                `yaml:"poller" doc:"How each shard is polled."`
	Log        Log                   `yaml:"log" doc:"What is logged, and how."`
	Prefix     string                `yaml:"prefix" default:"delay" doc:"First part of every key in Redis. Producers must use the same."`
	Instance   string                `yaml:"instance" doc:"Unique name of this process among the instances. Default: the host's name and six random characters."`
	// DrainTimeout bounds the wait for acknowledgements at shutdown.
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"20s" doc:"How long a shutdown waits for the brokers' acknowledgements before it releases the rest."`

	named bool // Instance was given
	// origin is the main file; zero if the configuration comes from [Parse].
	origin origin
	// included are the queue files, from which some of the queues come. wrong are their problems.
	included Included
	from     map[string]queueSource
	wrong    []*Problem
}

// origin is what a configuration was made of, besides its queue files.
type origin struct {
	path    string
	data    []byte
	environ []string
}

// RedisMode says how Redis is deployed.
type RedisMode string

// The ways to deploy Redis.
const (
	Standalone RedisMode = "standalone"
	Sentinel   RedisMode = "sentinel"
	Cluster    RedisMode = "cluster"
)

// Redis says how to reach Redis. Keys that are not for its Mode are zero.
type Redis struct {
	Mode RedisMode `yaml:"mode" default:"standalone" enum:"standalone,sentinel,cluster" doc:"How Redis is deployed."`
	// URL has the scheme redis, rediss or unix. It may hold a user and a password.
	URL       string   `yaml:"url" only:"standalone" default:"redis://127.0.0.1:6379/0" url:"true" doc:"Where Redis is: redis://, rediss:// (TLS) or unix://, with user, password and database number."`
	Master    string   `yaml:"master" only:"sentinel" required:"true" doc:"Name of the master that the sentinels watch."`
	Sentinels []string `yaml:"sentinels" only:"sentinel" required:"true" doc:"Addresses of the sentinels, host:port each."`
	Addrs     []string `yaml:"addrs" only:"cluster" required:"true" doc:"Addresses of some of the cluster's nodes, host:port each."`

	Username     string        `yaml:"username" doc:"The ACL user. Empty: the default user, or the one in the URL."`
	Password     secret.Secret `yaml:"password" doc:"The user's password."`
	PasswordFile string        `yaml:"password_file" file:"true" doc:"File that holds the password. It is read at each connect."`

	SentinelUsername     string        `yaml:"sentinel_username" only:"sentinel" doc:"The ACL user at the sentinels."`
	SentinelPassword     secret.Secret `yaml:"sentinel_password" only:"sentinel" doc:"The password at the sentinels."`
	SentinelPasswordFile string        `yaml:"sentinel_password_file" only:"sentinel" file:"true" doc:"File that holds the password at the sentinels."`

	// TLS is nil if the section is missing. It turns TLS on in every mode.
	TLS         *tlsclient.Files `yaml:"tls" doc:"Turns TLS on, and says how. An empty section verifies against the system's roots."`
	DialTimeout time.Duration    `yaml:"dial_timeout" default:"2s" doc:"Limit for making a connection."`
	Timeout     time.Duration    `yaml:"timeout" default:"2s" doc:"Limit for one read or write."`
}

// Queue is one delay queue.
type Queue struct {
	// Shards counts only where the queue has no layout in Redis yet.
	Shards int    `yaml:"shards" default:"8" min:"1" max:"1024" doc:"Number of shards. It counts only when the queue is created."`
	Sink   string `yaml:"sink" required:"true" doc:"Name of the sink that publishes the queue's messages."`
	// Owner and Contacts are for people.
	Owner    string   `yaml:"owner" doc:"Who the queue belongs to, such as a team. It is shown with the queue, and a label of delaybridge_queue_info."`
	Contacts []string `yaml:"contacts" doc:"Where the owner is reached: addresses, channels, pages. They are shown with the queue."`
	Retry    Retry    `yaml:"retry" doc:"What happens to a message that the broker refuses, but may accept later."`
	// ParkPatience is how long a route may be missing, unroutable or forbidden.
	ParkPatience time.Duration `yaml:"park_patience" default:"24h" min:"1s" doc:"How long a topic may be missing, unroutable or forbidden before its messages go to the dead letters."`
	Late         Late          `yaml:"late" doc:"What happens to a message that could not be published in time, for example after an outage or a pause."`
	Dead         DeadLimits    `yaml:"dead" doc:"Which dead letters stay. Those beyond a limit are purged, the oldest first."`
	Rate         Rate          `yaml:"rate" doc:"The most messages that are published per second."`
	History      History       `yaml:"history" doc:"What the queue remembers of messages that have ended: when, how and where."`
	Budget       Budget        `yaml:"budget" doc:"How many bytes the queue may take in Redis."`
	Topics       []string      `yaml:"topics" doc:"Topics that the queue takes; * stands for any characters. Messages of other topics are refused; those that already wait go to the dead letters. Empty: all."`
	Canary       Canary        `yaml:"canary" doc:"Small messages that the bridge schedules itself, to see whether the queue delivers."`
	MaxMessage   Size          `yaml:"max_message" default:"960KiB" min:"1" max:"16MiB" doc:"Largest size of id, key, topic, headers and body together: bytes, or with a unit, as 960KiB. Producers, the API and inlets follow a change within ten seconds."`
	Headers      Headers       `yaml:"headers" default:"full" enum:"full,minimal" doc:"Which headers the bridge adds to a published message: all, or only delay-uid and delay-due-at, and delay-attempt where it is more than 1. Those that the producer has given stay."`
	Durability   Durability    `yaml:"durability" default:"memory" enum:"memory,replicas,fsync" doc:"What must confirm a claim before its messages are published, a change before the API or a command reports it, and a row's message before the row says stored: only Redis' memory, replicas, or the disk (fsync)."`
	Replicas     int           `yaml:"replicas" only:"replicas" default:"1" min:"1" max:"16" doc:"How many replicas must confirm. If all do, a primary that hangs and is replaced loses nothing either; one missing replica stops the queue."`
	// Compensation is as given; [Config.CompensationTopic] is the topic in force.
	Compensation string `yaml:"compensation" doc:"Topic of the compensation messages. Default: delay.compensation. and the queue's name if there is an outbox, else none. off: none."`
}

// Headers are those that the bridge adds.
type Headers string

// The sets of headers.
const (
	FullHeaders    Headers = "full"
	MinimalHeaders Headers = "minimal"
)

// Durability is what must have confirmed what the bridge writes for a queue.
type Durability string

// The durabilities. Replicas asks as many as [Queue.Replicas] says.
const (
	Memory   Durability = "memory"
	Replicas Durability = "replicas"
	Fsync    Durability = "fsync"
)

// Retry is the backoff of a refused message: Initial, doubled each time up to
// Max, ± 20 %, until Attempts refusals make it a dead letter.
type Retry struct {
	Initial  time.Duration `yaml:"initial" default:"1s" doc:"Wait before the second attempt. It doubles with each further attempt."`
	Max      time.Duration `yaml:"max" default:"10m" doc:"Longest wait between two attempts."`
	Attempts int           `yaml:"attempts" default:"25" min:"1" max:"10000" doc:"Number of refusals after which the message goes to the dead letters."`
}

// Admin says where the HTTP listeners are, and who may do what there. An empty
// address is no listener.
type Admin struct {
	Listen string `yaml:"listen" default:"127.0.0.1:8080" doc:"Address of the listener with the API, /livez, /readyz and /metrics. Empty: none."`
	Probes string `yaml:"probes" default:"" doc:"Address of a second listener that has only /livez, /readyz and /metrics. Empty: none."`
	Auth   Auth   `yaml:"auth" doc:"Who may use the API."`
	// TLS is nil if the section is missing. It is for Listen, not for Probes.
	TLS      *tlsserver.Files `yaml:"tls" doc:"Turns TLS on for admin.listen, and says how."`
	ReadOnly bool             `yaml:"read_only" default:"false" doc:"Refuse everything in the API that changes something."`
	// LameDuck is for load balancers, which take some seconds to hear of /readyz.
	LameDuck time.Duration `yaml:"lame_duck" default:"0s" min:"0s" max:"10m" doc:"How long the bridge keeps working after SIGTERM while /readyz already answers 503, so that load balancers stop sending API calls before the drain begins."`
}

// Auth says who may use the API.
type Auth struct {
	TokensFile string `yaml:"tokens_file" file:"true" doc:"File of the tokens, see docs/api.md; it is read again when it changes. Without any of this section's keys, only callers on the host itself may change anything."`
	// Issuers and Certificates are as [access.Settings] has them.
	Issuers      map[string]access.Issuer `yaml:"issuers" doc:"Issuers whose JWTs callers may show instead of a token of the file, by name: see docs/identity.md. Without this section there are none."`
	Certificates []string                 `yaml:"certificates" doc:"Who may do what with a client certificate, a line each as in issuers.*.callers; the attributes are uri, dns, email, cn, o and ou. It needs admin.tls.client_ca_file."`
}

// Settings are those by which the guard of the API knows callers, besides the file of tokens.
func (a Auth) Settings() access.Settings {
	return access.Settings{Issuers: a.Issuers, Certificates: a.Certificates}
}

// NeedsCredential reports whether everybody needs a credential.
func (a Auth) NeedsCredential() bool {
	return a.TokensFile != "" || len(a.Issuers) > 0 || len(a.Certificates) > 0
}

// Encryption says how bodies are encrypted.
type Encryption struct {
	Keys       string `yaml:"keys" file:"true" doc:"File of the keys, see docs/encryption.md; it is read again when it changes. The first key encrypts what the API and the commands schedule; all of them decrypt for publishing. Without the file, messages that producers have encrypted wait."`
	ShowBodies bool   `yaml:"show_bodies" default:"false" doc:"Show encrypted bodies, too, in the API and the console, to everybody who may see the message."`
}

// Log configures the log.
type Log struct {
	Level  string `yaml:"level" default:"info" enum:"debug,info,warn,error" doc:"Lowest level that is logged."`
	Format string `yaml:"format" default:"auto" enum:"auto,text,json" doc:"Format of a line. auto: text on a terminal, else JSON."`
}

// Poller says how each shard is polled.
type Poller struct {
	Batch        int           `yaml:"batch" default:"500" min:"1" max:"500" doc:"Most messages in a claim."`
	InFlight     int           `yaml:"in_flight" default:"4" min:"1" max:"64" doc:"Most claims of a shard in flight at once."`
	ClaimTimeout time.Duration `yaml:"claim_timeout" default:"60s" doc:"How long a claim lasts before it may be reclaimed."`
	MaxSleep     time.Duration `yaml:"max_sleep" default:"2s" doc:"Longest wait between two polls of a shard. At most half of the lease."`
	Lease        time.Duration `yaml:"lease" default:"5s" doc:"How long a shard stays with an instance that has gone silent."`
}

// variant is a section whose keys depend on one of its values.
type variant interface {
	// variant returns that value and the name of its key.
	variant() (value, key string)
}

func (r Redis) variant() (value, key string) { return string(r.Mode), "mode" }
func (q Queue) variant() (value, key string) { return string(q.Durability), "durability" }
