package command

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store/rights"
	"github.com/delaybridge/delaybridge/internal/grants"
)

// aclCommand prints what users of Redis, of its sentinels and of the brokers must be allowed.
type aclCommand struct {
	fileFlag
	Role     []string `enum:"producer,bridge,operator,viewer" default:"bridge,producer,operator,viewer" placeholder:"ROLE" help:"Whose rights: producer, bridge, operator or viewer. May be given several times. Default: all."`
	Queue    []string `placeholder:"QUEUE" help:"Only for this queue. May be given several times. Default: all keys that begin with the prefix."`
	Format   string   `enum:"setuser,acl" default:"setuser" placeholder:"setuser|acl" help:"Format of the lines: commands for redis-cli, or a file of users."`
	Redis    string   `enum:"6.2,7.0" default:"7.0" placeholder:"6.2|7.0" help:"The oldest Redis to use them with: before 7.0 channels are not sharded."`
	Sentinel bool     `xor:"whose" help:"Print what each sentinel must allow redis.sentinel_username instead."`
	Broker   bool     `xor:"whose" help:"Print what the brokers must allow the bridge instead."`
}

func (aclCommand) Help() string {
	return `Without any one of these rights something fails. Replace PASSWORD by passwords. A line gives its user these
rights and takes all others away. The command connects to nothing.

A producer schedules with the SDK; an operator uses these commands, a viewer those that change nothing; the user of ` + "`bridge run`" + ` may do
all of that. Commands log in as the configuration says, so give operators a configuration with their own redis.username.

Example:

    bridge config acl --config bridge.yaml --role producer --queue orders | sed "s/PASSWORD/$PASSWORD/" | redis-cli`
}

func (c aclCommand) Run(p *program) error {
	cfg, err := loadConfig(p, c.Config)
	if err != nil {
		return err
	}
	for _, name := range c.Queue {
		if err := isKnown("queue", name, c.Config, cfg.Queues); err != nil {
			return err
		}
	}
	switch {
	case c.Broker:
		return c.printBrokers(p, cfg)
	case c.Sentinel && cfg.Redis.Mode != config.Sentinel:
		return usagef("%s has no sentinels: redis.mode is %s", c.Config, cfg.Redis.Mode)
	case c.Sentinel:
		return c.print(p, cmp.Or(cfg.Redis.SentinelUsername, "bridge"), rights.AtSentinels())
	}
	setup, user, err := c.setup(cfg)
	if err != nil {
		return err
	}
	for _, role := range c.Role {
		name := role
		if rights.Role(role) == rights.Bridge {
			name = cmp.Or(user, role)
		}
		if err := c.print(p, name, rights.For(rights.Role(role), setup)); err != nil {
			return err
		}
	}
	return nil
}

// print writes the line of one user.
func (c aclCommand) print(p *program, user string, allowed rights.Rights) error {
	line := allowed.SetUser(user, "PASSWORD")
	if c.Format == "acl" {
		line = allowed.UserLine(user, "PASSWORD")
	}
	_, err := fmt.Fprintln(p.stdout, line)
	return err
}

// setup is the configuration's Redis, and who logs in there.
func (c aclCommand) setup(cfg *config.Config) (setup rights.Setup, user string, err error) {
	setup = rights.Setup{
		Prefix: cfg.Prefix, Queues: c.Queue, Old: c.Redis == "6.2", Cluster: cfg.Redis.Mode == config.Cluster,
	}
	for name, queue := range cfg.Queues {
		isMeant := len(c.Queue) == 0 || slices.Contains(c.Queue, name)
		setup.Fsync = setup.Fsync || isMeant && queue.Durability == config.Fsync
	}
	if cfg.Redis.Mode != config.Standalone {
		return setup, cfg.Redis.Username, nil
	}
	options, err := redis.ParseURL(cfg.Redis.URL)
	if err != nil {
		return setup, "", fmt.Errorf("redis.url: %w", err)
	}
	setup.OtherDatabase = options.DB != 0
	return setup, cmp.Or(cfg.Redis.Username, options.Username), nil
}

func (aclCommand) printBrokers(p *program, cfg *config.Config) error {
	for _, name := range slices.Sorted(maps.Keys(cfg.Sinks)) {
		if _, err := fmt.Fprintf(p.stdout, "# sink %s (%s)\n", name, cfg.Sinks[name].Type); err != nil {
			return err
		}
		for _, line := range grants.Lines(cfg, name) {
			if _, err := fmt.Fprintln(p.stdout, line); err != nil {
				return err
			}
		}
	}
	return nil
}
