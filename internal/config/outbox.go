package config

import (
	"time"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// Outbox is one database that producers write messages into.
type Outbox struct {
	Driver schema.Dialect `yaml:"driver" required:"true" enum:"postgres,mysql" doc:"The kind of database; mysql also means MariaDB."`
	// DSN holds a password, and is masked as a whole.
	DSN     secret.Secret `yaml:"dsn" doc:"Where the database is: postgres://user:password@host:5432/name, or user:password@tcp(host:3306)/name."`
	DSNFile string        `yaml:"dsn_file" file:"true" doc:"File that holds the dsn. It is read at each connect."`
	// TLS is nil if the section is missing: then the DSN says it.
	TLS     *tlsclient.Files `yaml:"tls" doc:"Turns TLS on, and says how, in place of what the dsn says. An empty section verifies against the system's roots."`
	Table   string           `yaml:"table" default:"delay_outbox" doc:"Name of the table, as SCHEMA.TABLE if it is not in the user's default schema. Producers must use the same."`
	Horizon time.Duration    `yaml:"horizon" default:"1h" doc:"How long before its due time a message is taken to Redis. At least 10 times poll."`
	Keep    time.Duration    `yaml:"keep" default:"24h" min:"0s" doc:"How long a row is kept after its message has ended, so that it can be looked up. 0: the row of a published message is deleted at once."`
	// KeepOperations is 0 if they are kept as all rows are.
	KeepOperations time.Duration `yaml:"keep_operations" min:"0s" doc:"How long the row of a cancel or reschedule is kept after its end, if that is shorter than keep. Default: as long as keep."`
	Notify         bool          `yaml:"notify" only:"postgres" default:"false" doc:"Also listen for notifications, which producers may send."`
	Poll           time.Duration `yaml:"poll" default:"200ms" doc:"Wait between two polls of the table."`
	Batch          int           `yaml:"batch" default:"2000" min:"1" max:"5000" doc:"Most rows taken at once."`
	Relays         int           `yaml:"relays" default:"2" min:"1" max:"16" doc:"How many relays of this process take rows at the same time."`
	Audit          int           `yaml:"audit" default:"1000" min:"1" max:"100000" doc:"How many rows of each queue are compared with Redis per second while no loss is known."`
}

// Source is where the database is and how to get in.
func (o Outbox) Source() sqldb.Source { return sqldb.Source{DSN: o.DSN, TLS: o.TLS} }

// defaultOutbox is the name of an outbox that was given without one.
const defaultOutbox = "default"

// removed implements remover.
func (o Outbox) removed(key string) string {
	if key == "until" {
		return "is not needed any more: a row is kept until its message has ended, and then for keep"
	}
	return ""
}

func (o Outbox) variant() (value, key string) { return string(o.Driver), "driver" }

// noCompensation is the topic that turns compensation off.
const noCompensation = "off"

// CompensationTopic returns the topic of a queue's compensation messages, and
// "" if none are consumed.
func (c *Config) CompensationTopic(queue string) string {
	switch topic := c.Queues[queue].Compensation; {
	case topic == noCompensation, topic == "" && (len(c.Outbox) == 0 || !c.Sinks[c.Queues[queue].Sink].IsConsumed()):
		return ""
	case topic == "":
		return compensation.Topic(queue)
	default:
		return topic
	}
}
