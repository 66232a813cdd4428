package config

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
)

const (
	postgresOutbox = `outbox: {driver: postgres, dsn: "postgres://u:hunter2@db:5432/shop"}
`
	twoOutboxes = `outbox:
  billing: {driver: mysql, dsn: "u:hunter2@tcp(db:3306)/billing", table: other, audit: 5, batch: 10}
  shop-2: {driver: postgres, dsn: "host=db password=hunter2 dbname=shop", notify: true, horizon: 1d}
`
)

func TestOutboxIsOneObject(t *testing.T) {
	t.Parallel()
	config, err := Parse([]byte(base+postgresOutbox), []string{"DELAYBRIDGE__OUTBOX__KEEP=1h", "DELAYBRIDGE__OUTBOX__RELAYS=3"})
	require.NoError(t, err)
	outbox := config.Outbox[defaultOutbox]
	assert.Equal(t, "postgres://u:hunter2@db:5432/shop", reveal(t, outbox.DSN))
	assert.Equal(t, Outbox{
		Driver: schema.Postgres, DSN: outbox.DSN, Table: "delay_outbox", Audit: 1000, Horizon: time.Hour, Keep: time.Hour,
		Poll: 200 * time.Millisecond, Batch: 2000, Relays: 3,
	}, outbox)
	assert.Len(t, config.Outbox, 1)

	config, err = Parse([]byte(base), []string{"DELAYBRIDGE__OUTBOX__DRIVER=mysql", "DELAYBRIDGE__OUTBOX__DSN=u:p@tcp(h)/d"})
	require.NoError(t, err)
	assert.Equal(t, schema.MySQL, config.Outbox[defaultOutbox].Driver, "variables alone do")
	for _, none := range []string{"", "outbox:\n"} {
		config, err = Parse([]byte(base+none), nil)
		require.NoError(t, err)
		assert.Nil(t, config.Outbox)
	}
}

func TestOutboxIsAMapOfNames(t *testing.T) {
	t.Parallel()
	config, err := Parse([]byte(base+twoOutboxes), []string{"DELAYBRIDGE__OUTBOX__SHOP_2__TABLE=t", "DELAYBRIDGE__OUTBOX__BILLING__POLL=1s"})
	require.NoError(t, err)
	require.Len(t, config.Outbox, 2)
	assert.Equal(t, "t", config.Outbox["shop-2"].Table)
	assert.True(t, config.Outbox["shop-2"].Notify)
	assert.Equal(t, 24*time.Hour, config.Outbox["shop-2"].Horizon)
	billing := config.Outbox["billing"]
	assert.Equal(t, []any{"other", 5, 10, time.Second}, []any{billing.Table, billing.Audit, billing.Batch, billing.Poll})
}

func TestOutboxPrint(t *testing.T) {
	t.Parallel()
	for _, text := range []string{postgresOutbox, twoOutboxes} {
		config, err := Parse([]byte(base+text), nil)
		require.NoError(t, err)
		var out, again bytes.Buffer
		require.NoError(t, config.Print(&out))
		assert.NotContains(t, out.String(), "hunter2")
		loaded, err := Parse(out.Bytes(), nil)
		require.NoError(t, err, out.String())
		require.NoError(t, loaded.Print(&again))
		assert.Equal(t, out.String(), again.String())
		assert.Len(t, loaded.Outbox, len(config.Outbox))
	}
}

func TestOutboxDSNFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(file, []byte("postgres://u:p@h/d\n"), 0o600))
	config, err := Parse([]byte(base+"outbox: {driver: postgres, dsn_file: "+file+"}"), nil)
	require.NoError(t, err)
	assert.Equal(t, "postgres://u:p@h/d", reveal(t, config.Outbox[defaultOutbox].DSN))
	require.NoError(t, os.WriteFile(file, []byte("nonsense"), 0o600))
	_, err = Parse([]byte(base+"outbox: {driver: postgres, dsn_file: "+file+"}"), nil)
	assertOnly(t, err, want{"line 3: outbox.dsn_file: ", "is not a PostgreSQL DSN"})
}

func TestOutboxErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]want{
		"outbox: {}":                                                    {"line 3: outbox.driver: ", "missing"},
		"outbox: {driver: oracle, dsn: x}":                              {"line 3: outbox.driver: ", "is not one of postgres, mysql"},
		"outbox: {driver: postgres}":                                    {"line 3: outbox.dsn: ", "missing"},
		"outbox: {driver: mysql, dsn: x}":                               {"line 3: outbox.dsn: ", "is not a MySQL DSN"},
		"outbox: {driver: mysql, dsn: u@/}":                             {"line 3: outbox.dsn: ", "names no database"},
		"outbox: {driver: postgres,\n dsn: 'postgres://u:hunter2 @:x'}": {"line 4: outbox.dsn: ", "is not a PostgreSQL DSN"},
		"outbox: {driver: postgres, dsn: 'host=db sslmode=verify-full sslrootcert=/none'}": {"line 3: outbox.dsn: ", "open /none"},
		"outbox: {driver: mysql, dsn: u@/d, notify: true}":                                 {"line 3: outbox.notify: ", "is a key of driver postgres"},
		"outbox: {driver: mysql, dsn: u@/d, table: A}":                                     {"line 3: outbox.table: ", `"A": give 1 to 41`},
		"outbox: {driver: mysql, dsn: u@/d, table: a.b.c}":                                 {"line 3: outbox.table: ", `"a.b.c": give 1 to 41`},
		"outbox: {driver: mysql, dsn: u@/d, horizon: 1s}":                                  {"line 3: outbox.horizon: ", "at least 10 times poll (200ms)"},
		"outbox: {driver: mysql, dsn: u@/d, until: published}":                             {"line 3: outbox.until: ", "is not needed any more: a row is kept until its message has ended"},
		"outbox: {driver: mysql, dsn: u@/d, audit: 0}":                                     {"line 3: outbox.audit: ", "allowed are 1 to 100000"},
		"outbox: {driver: mysql, dsn: u@/d, relays: 0}":                                    {"line 3: outbox.relays: ", "allowed are 1 to 16"},
		"outbox: {driver: mysql, dsn: u@/d, batch: 5001}":                                  {"line 3: outbox.batch: ", "allowed are 1 to 5000"},
		"outbox: {driver: mysql, dsn: u@/d, x: 1}":                                         {"line 3: outbox.x: ", "unknown key"},
		"outbox: {driver: mysql, dsn: u@/d, dsn_file: go.mod}":                             {"line 3: outbox.dsn_file: ", "dsn is given too"},
		"outbox: {driver: mysql, dsn_file: /none}":                                         {"line 3: outbox.dsn_file: ", "no such file"},
		"outbox:\n  a: {driver: mysql, dsn: u@/d}\n  b: {driver: mysql}":                   {"line 5: outbox.b.dsn: ", "missing"},
		"outbox:\n  a: {driver: mysql, dsn: u@/d}\n  A: {}":                                {"line 5: outbox.A: ", "is no name"},
		"outbox:\n  a: {driver: mysql, dsn: u@/d}\n  b: {driver: mysql, dsn: u@/d}":        {"line 5: outbox.b: ", "is the same table as outbox a"},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(base+text+"\n"), nil)
			assertOnly(t, err, want)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestCompensationTopics(t *testing.T) {
	t.Parallel()
	const queues = `queues: {plain: {sink: s}, own: {sink: s, compensation: mine}, none: {sink: s, compensation: off}}
sinks: {s: {type: kafka, brokers: ["a:1"]}}
`
	for outbox, plain := range map[string]string{"": "", postgresOutbox: "delay.compensation.plain"} {
		config, err := Parse([]byte(queues+outbox), []string{})
		require.NoError(t, err)
		assert.Equal(t, plain, config.CompensationTopic("plain"))
		assert.Equal(t, "mine", config.CompensationTopic("own"))
		assert.Empty(t, config.CompensationTopic("none"))
	}
	for text, want := range map[string]want{
		`queues: {a: {sink: events, compensation: "a b"}}`:                                                                          {"line 1: queues.a.compensation: ", "a NATS subject has no space"},
		"queues:\n  a: {sink: events, compensation: c}\n  b: {sink: events, compensation: c}":                                       {"line 3: queues.b.compensation: ", `"c" is the compensation topic of queue a too`},
		"outbox: {driver: mysql, dsn: u@/d}\nqueues:\n  a: {sink: events, compensation: delay.compensation.b}\n  b: {sink: events}": {"line 4: queues.b: ", ""},
	} {
		_, err := Parse([]byte(text+"\nsinks: {events: {type: nats, url: \"nats://a\"}}\n"), nil)
		if want.part == "" {
			require.ErrorContains(t, err, "line 4: queues.b.compensation: ")
			continue
		}
		assertOnly(t, err, want)
	}
}
